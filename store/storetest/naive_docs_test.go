package storetest

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/store"
)

func (n *naive) docKey(kind, name string) [2]string {
	if n.bug == docsWithoutKind {
		kind = ""
	}
	return [2]string{kind, name}
}

func (n *naive) PutDocs(ctx context.Context, docs []store.Doc) ([]uint64, error) {
	_, err := n.begin(ctx, true)
	if err != nil {
		return nil, err
	}
	defer n.mu.Unlock()
	if err := store.CheckDocs(docs); err != nil && n.bug != acceptsAnyDoc {
		return nil, err
	}
	for i, d := range docs {
		current := n.data.docs[n.docKey(d.Kind, d.Name)].Version
		if current != d.Version && n.bug != lastDocWins {
			if n.bug == halfDocs {
				n.putDocs(docs[:i])
			}
			return nil, d.Conflict(current)
		}
	}
	return n.putDocs(docs), nil
}

func (n *naive) putDocs(docs []store.Doc) []uint64 {
	versions := make([]uint64, len(docs))
	for i, d := range docs {
		key := n.docKey(d.Kind, d.Name)
		if d.Data == nil || n.bug == emptyDocDeletes && len(d.Data) == 0 {
			delete(n.data.docs, key)
			continue
		}
		n.data.version++
		versions[i] = n.data.version
		if n.bug == docVersionsRestart {
			versions[i] = d.Version + 1
		}
		d.Version = versions[i]
		if n.bug != borrowsDoc {
			d.Data = append([]byte{}, d.Data...)
		}
		n.data.docs[key] = d
	}
	return versions
}

func (n *naive) Doc(ctx context.Context, kind, name string) (d store.Doc, err error) {
	_, err = n.begin(ctx, false)
	if err != nil {
		return d, err
	}
	defer n.mu.Unlock()
	if err := store.CheckDocName(kind, name); err != nil {
		return d, err
	}
	d, ok := n.data.docs[n.docKey(kind, name)]
	if !ok {
		return d, fmt.Errorf("naive: document %s/%s: %w", kind, name, gq.ErrNotFound)
	}
	d.Data = bytes.Clone(d.Data)
	return d, nil
}

func (n *naive) FindDocs(ctx context.Context, names []store.DocName) (docs []store.Doc, err error) {
	if _, err := n.begin(ctx, false); err != nil {
		return nil, err
	}
	defer n.mu.Unlock()
	if err := store.CheckDocNames(names); err != nil {
		return nil, err
	}
	for _, name := range names {
		if d, ok := n.data.docs[n.docKey(name.Kind, name.Name)]; ok {
			d.Data = bytes.Clone(d.Data)
			docs = append(docs, d)
		}
	}
	return docs, nil
}

func (n *naive) Docs(ctx context.Context, kind, after string, limit int) (docs []store.Doc, err error) {
	_, err = n.begin(ctx, false)
	if err != nil {
		return nil, err
	}
	defer n.mu.Unlock()
	if limit, err = store.CheckDocPage(kind, after, limit); err != nil {
		return nil, err
	}
	for _, d := range n.data.docs {
		if d.Kind == kind && (d.Name > after || n.bug == docPagesOverlap && d.Name == after) {
			d.Data = bytes.Clone(d.Data)
			docs = append(docs, d)
		}
	}
	slices.SortFunc(docs, func(a, b store.Doc) int { return cmp.Compare(a.Name, b.Name) })
	return docs[:min(limit, len(docs))], nil
}
