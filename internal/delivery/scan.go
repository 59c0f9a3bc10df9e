package delivery

import (
	"context"
	"errors"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/retry"
	"github.com/gopherqueue/gq/store"
)

// pruneEvery is how often old deliveries are deleted.
const pruneEvery = 10 * time.Minute

// scan finds outstanding deliveries that this process does not know: those from before
// its start, or left behind by other processes.
func (h *Hooks) scan(ctx context.Context) error {
	var pruned time.Time
	for {
		err := h.retry(ctx, "look for outstanding webhooks", h.scanOnce)
		if err == nil && time.Since(pruned) >= pruneEvery {
			pruned = time.Now()
			err = h.retry(ctx, "drop old webhooks", func(ctx context.Context) error { return h.prune(ctx, time.Now()) })
		}
		if err != nil {
			return err
		}
		if !retry.Pause(ctx, h.options.Scan) {
			return nil
		}
	}
}

func (h *Hooks) scanOnce(ctx context.Context) error {
	return each(ctx, h.store, kindDue, func(doc *store.Doc) (bool, error) {
		h.mu.Lock()
		known := h.known[doc.Name] != nil
		h.mu.Unlock()
		if known {
			return true, nil
		}
		r, err := readRecord(doc)
		if err != nil {
			return false, err
		}
		h.add(r, 0)
		return true, nil
	})
}

// each visits the documents of a kind, oldest first, until visit returns false.
func each(ctx context.Context, s Store, kind string, visit func(*store.Doc) (bool, error)) error {
	for after := ""; ; {
		docs, err := s.Docs(ctx, kind, after, store.MaxPage)
		if err != nil {
			return err
		}
		for i := range docs {
			if more, err := visit(&docs[i]); err != nil || !more {
				return err
			}
		}
		if len(docs) < store.MaxPage {
			return nil
		}
		after = docs[len(docs)-1].Name
	}
}

// prune deletes ended deliveries after their retention.
func (h *Hooks) prune(ctx context.Context, now time.Time) error {
	for kind, keep := range map[string]time.Duration{kindDone: h.options.KeepDone, kindDead: h.options.KeepDead} {
		for more := true; more; {
			var err error
			if more, err = h.pruneSome(ctx, kind, now.Add(-keep)); err != nil {
				return err
			}
		}
	}
	return nil
}

// pruneSome deletes the oldest deliveries created before a given time, as many as fit
// into one commit, and reports whether there may be more.
func (h *Hooks) pruneSome(ctx context.Context, kind string, before time.Time) (more bool, err error) {
	var old []store.Doc
	err = each(ctx, h.store, kind, func(doc *store.Doc) (bool, error) {
		r, err := readRecord(doc)
		if err != nil {
			return false, err
		}
		if r.CreatedAt.After(before) {
			return false, nil
		}
		old = append(old, store.Doc{Kind: kind, Name: doc.Name, Version: doc.Version})
		return len(old) < store.MaxDocs, nil
	})
	if err != nil || len(old) == 0 {
		return false, err
	}
	_, err = h.store.PutDocs(ctx, old)
	if errors.Is(err, gq.ErrConflict) {
		return false, nil // another process is pruning
	}
	return len(old) == store.MaxDocs, err
}
