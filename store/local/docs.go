package local

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/store"
)

// Documents are on disk only, where a read finds everything acknowledged. The writer
// may be ahead of the disk, so it remembers its writes until they are durable. Versions
// come from one counter for the whole store: a recreated document gets a version that
// was never used.

// documents holds the writes that are not on disk yet. It belongs to the writer.
type documents struct {
	loaded bool
	last   uint64               // the newest version
	recent map[string]recentDoc // by key
}

// recentDoc is a document as the writer last wrote it.
type recentDoc struct {
	version uint64 // 0 if it was deleted
	commit  uint64
}

var metaDocs = []byte{prefixMeta, 'd'} // the newest version of a document

// docKey separates kind and name by a byte that neither can contain.
func docKey(kind, name string) []byte {
	b := make([]byte, 0, 2+len(kind)+len(name))
	b = append(append(b, prefixDoc), kind...)
	return append(append(b, 0), name...)
}

// A document's record is its version, in 8 bytes, and its data.
func encodeDoc(version uint64, data []byte) []byte {
	return append(binary.BigEndian.AppendUint64(make([]byte, 0, 8+len(data)), version), data...)
}

func decodeDoc(b []byte) (version uint64, data []byte, err error) {
	if len(b) < 8 || binary.BigEndian.Uint64(b) == 0 {
		return 0, nil, fmt.Errorf("document: %w", gq.ErrCorrupt)
	}
	return binary.BigEndian.Uint64(b), append([]byte{}, b[8:]...), nil
}

// PutDocs implements [store.Store].
func (s *Store) PutDocs(ctx context.Context, docs []store.Doc) ([]uint64, error) {
	if err := store.CheckDocs(docs); err != nil {
		return nil, err
	}
	if len(docs) == 0 {
		return nil, s.usable(ctx)
	}
	size := 0
	for i := range docs {
		size += len(docs[i].Data)
	}
	var versions []uint64
	var refused error
	err := s.do(ctx, len(docs)+size>>10, func(tx *txn) {
		if refused = s.fits(forChanges, tx.size()+size); refused == nil {
			versions, refused = tx.putDocs(docs)
		}
	})
	if err == nil && refused != nil {
		err = refused
	}
	if err != nil {
		return nil, err
	}
	return versions, nil
}

// putDocs checks every version and then writes.
func (tx *txn) putDocs(docs []store.Doc) ([]uint64, error) {
	known := &tx.s.documents
	if err := known.load(tx.s); err != nil {
		return nil, err
	}
	for i := range docs {
		current, err := tx.docVersion(docKey(docs[i].Kind, docs[i].Name))
		if err != nil {
			return nil, err
		}
		if current != docs[i].Version {
			return nil, docs[i].Conflict(current)
		}
	}
	versions := make([]uint64, len(docs))
	for i := range docs {
		key := docKey(docs[i].Kind, docs[i].Name)
		if docs[i].Data == nil {
			tx.remove(key)
		} else {
			known.last++
			versions[i] = known.last
			tx.set(key, encodeDoc(versions[i], docs[i].Data))
		}
		known.recent[string(key)] = recentDoc{versions[i], tx.s.applied}
	}
	tx.set(metaDocs, binary.BigEndian.AppendUint64(nil, known.last))
	return versions, nil
}

// load reads the newest version once, and forgets the writes that are on disk by now.
func (d *documents) load(s *Store) error {
	durable := s.durable.Load()
	for key, r := range d.recent {
		if r.commit <= durable {
			delete(d.recent, key)
		}
	}
	if d.loaded {
		return nil
	}
	raw, err := s.read(metaDocs)
	switch {
	case errors.Is(err, gq.ErrNotFound):
	case err != nil:
		return err
	case len(raw) != 8:
		return fmt.Errorf("record %q: %w", metaDocs, gq.ErrCorrupt)
	default:
		d.last = binary.BigEndian.Uint64(raw)
	}
	d.loaded, d.recent = true, map[string]recentDoc{}
	return nil
}

// docVersion returns a document's version in the open commit, 0 if it does not exist.
func (tx *txn) docVersion(key []byte) (uint64, error) {
	if r, ok := tx.s.documents.recent[string(key)]; ok {
		return r.version, nil
	}
	raw, err := tx.s.read(key)
	if errors.Is(err, gq.ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	version, _, err := decodeDoc(raw)
	if err != nil {
		return 0, fmt.Errorf("record %q: %w", key, err)
	}
	return version, nil
}

// Doc implements [store.Store].
func (s *Store) Doc(ctx context.Context, kind, name string) (store.Doc, error) {
	if err := store.CheckDocName(kind, name); err != nil {
		return store.Doc{}, err
	}
	d := store.Doc{Kind: kind, Name: name}
	err := s.view(ctx, oneByOne, func(time.Time) (then, error) {
		raw, err := s.read(docKey(kind, name))
		if err == nil {
			d.Version, d.Data, err = decodeDoc(raw)
		}
		if err != nil {
			err = fmt.Errorf("%s/%s: %w", kind, name, err)
		}
		return nil, err
	})
	if err != nil {
		return store.Doc{}, err
	}
	return d, nil
}

// FindDocs implements [store.Store].
func (s *Store) FindDocs(ctx context.Context, names []store.DocName) (docs []store.Doc, err error) {
	if err := store.CheckDocNames(names); err != nil {
		return nil, err
	}
	err = s.view(ctx, oneByOne, func(time.Time) (_ then, err error) {
		moment := s.db.NewSnapshot()
		defer func() { err = errors.Join(err, moment.Close()) }()
		for _, n := range names {
			key := docKey(n.Kind, n.Name)
			raw, closer, err := moment.Get(key)
			if errors.Is(err, pebble.ErrNotFound) {
				continue
			}
			if err != nil {
				return nil, damaged(err)
			}
			d := store.Doc{Kind: n.Kind, Name: n.Name}
			d.Version, d.Data, err = decodeDoc(raw)
			if err = errors.Join(err, closer.Close()); err != nil {
				return nil, fmt.Errorf("record %q: %w", key, err)
			}
			docs = append(docs, d)
		}
		return nil, nil
	})
	if err != nil {
		return nil, err
	}
	return docs, nil
}

// Docs implements [store.Store].
func (s *Store) Docs(ctx context.Context, kind, after string, limit int) (docs []store.Doc, err error) {
	if limit, err = store.CheckDocPage(kind, after, limit); err != nil {
		return nil, err
	}
	from, end := docKey(kind, after), docKey(kind, "")
	if after != "" {
		from = append(from, 0)
	}
	end[len(end)-1]++ // just after the last name of the kind
	err = s.view(ctx, oneByOne, func(time.Time) (_ then, err error) {
		it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: from, UpperBound: end})
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", s.dir, err)
		}
		defer func() { err = either(err, damaged(it.Close())) }()
		for ok := it.First(); ok && len(docs) < limit; ok = it.Next() {
			d := store.Doc{Kind: kind, Name: string(it.Key()[len(end):])}
			if d.Version, d.Data, err = decodeDoc(it.Value()); err != nil {
				return nil, fmt.Errorf("record %q: %w", it.Key(), err)
			}
			docs = append(docs, d)
		}
		return nil, damaged(it.Error())
	})
	if err != nil {
		return nil, fmt.Errorf("documents of kind %s: %w", kind, err)
	}
	return docs, nil
}
