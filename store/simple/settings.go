package simple

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

// PutQueue implements [store.Settings].
func (s *Store) PutQueue(ctx context.Context, q gq.Queue) error {
	now, err := s.begin(ctx)
	if err != nil {
		return err
	}
	defer s.end()
	_, hasPool := s.pools[q.Pool]
	if err := cmp.Or(machine.CheckQueue(q), store.CheckPool(q, hasPool)); err != nil {
		return err
	}
	old, exists := s.queues[q.Name]
	if !exists && len(s.queues) >= gq.MaxQueues {
		return store.TooManyQueues(q.Name)
	}
	if q, err = machine.ConfigureQueue(old, q, now); err != nil {
		return err
	}
	s.changed(q.Name) // with the pool that it may leave
	s.changeKeys(q.Name, now, func() { s.queues[q.Name] = q })
	delete(s.deleted, q.Name)
	s.changed(q.Name)
	if old.Fair != q.Fair {
		s.rearrange(q.Name)
	}
	return nil
}

// DeleteQueue implements [store.Settings].
func (s *Store) DeleteQueue(ctx context.Context, name string) error {
	if _, err := s.begin(ctx); err != nil {
		return err
	}
	defer s.end()
	if _, exists := s.queues[name]; !exists || s.hidden(name) {
		return store.NoQueue(name)
	}
	if c := s.counts[name]; c != nil {
		if err := store.QueueInUse(*c); err != nil {
			return err
		}
	}
	s.queues[name], s.deleted[name] = machine.NewQueue(name), true
	delete(s.rates, name)
	maps.DeleteFunc(s.ownKeys, func(k limitKey, _ gq.QueueKey) bool { return k.queue == name })
	maps.DeleteFunc(s.owed, func(k limitKey, _ time.Time) bool { return k.queue == name })
	for k := range s.served {
		if k.queue == name {
			delete(s.served, k)
		}
	}
	for k := range s.newest {
		if k.queue == name {
			delete(s.newest, k)
		}
	}
	return nil
}

// hidden reports whether a queue was deleted and has no jobs.
func (s *Store) hidden(name string) bool {
	if !s.deleted[name] {
		return false
	}
	c := s.counts[name]
	return c == nil || c.By == gq.Count{}.By
}

// Queues implements [store.Settings].
func (s *Store) Queues(ctx context.Context, asked store.QueueQuery) (queues []gq.Queue, err error) {
	if _, err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.end()
	for _, name := range slices.Sorted(maps.Keys(s.queues)) {
		q := s.queues[name]
		if asked.Limit > 0 && len(queues) == asked.Limit {
			break
		}
		if s.hidden(name) {
			continue
		}
		if name > asked.After && (asked.Names == nil || slices.Contains(asked.Names, name)) &&
			(asked.Pool == "" || asked.Pool == q.Pool) && asked.Selects(q) {
			queues = append(queues, q)
		}
	}
	return queues, nil
}

// PutPool implements [store.Settings].
func (s *Store) PutPool(ctx context.Context, p gq.Pool) error {
	now, err := s.begin(ctx)
	if err != nil {
		return err
	}
	defer s.end()
	if err := machine.CheckPool(p); err != nil {
		return err
	}
	if _, exists := s.pools[p.Name]; !exists && len(s.pools) >= gq.MaxPools {
		return fmt.Errorf("pool %s would be one more than %d: %w", p.Name, gq.MaxPools, gq.ErrTooMany)
	}
	p.UpdatedAt, p.Used = now, 0
	s.pools[p.Name] = p
	for name, q := range s.queues {
		if q.Pool == p.Name {
			s.changed(name)
		}
	}
	return nil
}

// Pools implements [store.Settings].
func (s *Store) Pools(ctx context.Context) (pools []gq.Pool, err error) {
	now, err := s.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer s.end()
	used := s.limits(gq.StatusRunning, now).used
	for _, name := range slices.Sorted(maps.Keys(s.pools)) {
		p := s.pools[name]
		p.Used = used[name]
		pools = append(pools, p)
	}
	return pools, nil
}

type docKey struct{ kind, name string }

// PutDocs implements [store.Documents].
func (s *Store) PutDocs(ctx context.Context, docs []store.Doc) ([]uint64, error) {
	if _, err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.end()
	if err := cmp.Or(store.CheckDocs(docs), s.checkVersions(docs)); err != nil {
		return nil, err
	}
	return s.putDocs(docs), nil
}

// checkVersions returns an error if a document has changed since its caller read it.
func (s *Store) checkVersions(docs []store.Doc) error {
	for _, d := range docs {
		if current := s.docs[docKey{d.Kind, d.Name}].Version; current != d.Version {
			return d.Conflict(current)
		}
	}
	return nil
}

// putDocs writes documents and returns their versions.
func (s *Store) putDocs(docs []store.Doc) []uint64 {
	versions := make([]uint64, len(docs))
	for i, d := range docs {
		if d.Data == nil {
			delete(s.docs, docKey{d.Kind, d.Name})
			continue
		}
		s.version++
		versions[i] = s.version
		d.Version, d.Data = s.version, bytes.Clone(d.Data)
		s.docs[docKey{d.Kind, d.Name}] = d
	}
	return versions
}

// Doc implements [store.Documents].
func (s *Store) Doc(ctx context.Context, kind, name string) (store.Doc, error) {
	if _, err := s.begin(ctx); err != nil {
		return store.Doc{}, err
	}
	defer s.end()
	if err := store.CheckDocName(kind, name); err != nil {
		return store.Doc{}, err
	}
	d, ok := s.docs[docKey{kind, name}]
	if !ok {
		return store.Doc{}, fmt.Errorf("document %s/%s: %w", kind, name, gq.ErrNotFound)
	}
	d.Data = bytes.Clone(d.Data)
	return d, nil
}

// FindDocs implements [store.Documents].
func (s *Store) FindDocs(ctx context.Context, names []store.DocName) (docs []store.Doc, err error) {
	if _, err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.end()
	if err := store.CheckDocNames(names); err != nil {
		return nil, err
	}
	for _, n := range names {
		if d, ok := s.docs[docKey{n.Kind, n.Name}]; ok {
			d.Data = bytes.Clone(d.Data)
			docs = append(docs, d)
		}
	}
	return docs, nil
}

// Docs implements [store.Documents].
func (s *Store) Docs(ctx context.Context, kind, after string, limit int) (docs []store.Doc, err error) {
	if _, err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.end()
	if limit, err = store.CheckDocPage(kind, after, limit); err != nil {
		return nil, err
	}
	for _, d := range s.docs {
		if d.Kind == kind && d.Name > after {
			docs = append(docs, d)
		}
	}
	slices.SortFunc(docs, func(a, b store.Doc) int { return cmp.Compare(a.Name, b.Name) })
	docs = docs[:min(limit, len(docs))]
	for i := range docs {
		docs[i].Data = bytes.Clone(docs[i].Data)
	}
	return docs, nil
}
