// Package transfer carries everything that a store holds to another one, or to a
// file and back: in parts, each with a mark of how far it has got, so that what
// was broken off goes on; and proves by counts and checksums that all of it has
// arrived before the destination may be used.
package transfer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/store"
)

// Destination can be filled, and read again to see whether all of it arrived.
type Destination interface {
	store.Importer
	store.Exporter
}

// Options are what a copy may be told.
type Options struct {
	// Progress, if set, is called with every part.
	Progress func(Progress)

	// Unchanged, if set, is asked before the end whether the source is still
	// what was copied.
	Unchanged func(ctx context.Context) error
}

// Progress is how far a copy has got.
type Progress struct {
	Verifying bool  // the destination is being read
	Done      int64 // jobs and events so far
	Total     int64 // of about so many
}

// Report is what was moved and was found at the destination.
type Report struct {
	Resumed   bool // an earlier run had begun it
	Sums      Sums
	LastEvent uint64
	Elapsed   time.Duration
}

// limit is how many items one part has.
const limit = 2000

// mark is kept at the destination with every part.
type mark struct {
	Cursor []byte `json:"cursor"` // of the next part
	Done   bool   `json:"done"`   // there is none
	Sums   Sums   `json:"sums"`   // of all parts so far
}

// Copy moves everything and verifies it. Where it fails the destination is
// unfinished, and calling it again with the same source goes on.
func Copy(ctx context.Context, from store.Export, to Destination, o Options) (Report, error) {
	began := time.Now()
	head := from.Head()
	in, err := to.Import(ctx, head)
	if err != nil {
		return Report{}, err
	}
	var at mark
	report := Report{LastEvent: head.LastEvent}
	if raw := in.Mark(); len(raw) > 0 {
		if err := json.Unmarshal(raw, &at); err != nil {
			return report, fmt.Errorf("the mark of the unfinished copy: %w: %w", gq.ErrCorrupt, err)
		}
		report.Resumed = true
	}
	m := &mover{options: o, total: head.Jobs + int64(head.LastEvent-head.Gone)}
	if err := m.carry(ctx, from, in, &at); err != nil {
		return report, err
	}
	if f, ok := from.(*File); ok && f.sums != at.Sums {
		return report, fmt.Errorf("what was read is not what the backup says it holds: %s: %w", at.Sums.difference(f.sums), gq.ErrCorrupt)
	}
	report.Sums = at.Sums
	if err := m.verify(ctx, to, head, at.Sums); err != nil {
		return report, err
	}
	if o.Unchanged != nil {
		if err := o.Unchanged(ctx); err != nil {
			return report, err
		}
	}
	if err := in.Finish(ctx); err != nil {
		return report, err
	}
	report.Elapsed = time.Since(began)
	return report, nil
}

type mover struct {
	options Options
	total   int64
}

func (m *mover) tell(verifying bool, s *Sums) {
	if m.options.Progress != nil {
		done := int64(s.of(kindJob).Count + s.of(kindEvent).Count)
		m.options.Progress(Progress{verifying, done, max(m.total, done)})
	}
}

// part is what one Read has returned.
type part struct {
	items store.Items
	next  string
	err   error
}

// read reads parts ahead of whoever takes them. It ends with the context, after
// an error and after the last part.
func read(ctx context.Context, from store.Export, cursor string) <-chan part {
	parts := make(chan part)
	go func() {
		defer close(parts)
		for {
			var p part
			p.items, p.next, p.err = from.Read(ctx, cursor, limit)
			select {
			case parts <- p:
			case <-ctx.Done():
				return
			}
			if cursor = p.next; p.err != nil || cursor == "" {
				return
			}
		}
	}()
	return parts
}

// each calls visit with every part from a cursor on. The reader has ended when it
// returns.
func each(ctx context.Context, from store.Export, cursor string, visit func(part) error) error {
	ctx, cancel := context.WithCancel(ctx)
	parts := read(ctx, from, cursor)
	defer func() {
		cancel()
		for range parts { // until it has ended
		}
	}()
	for p := range parts {
		if p.err != nil {
			return p.err
		}
		if err := visit(p); err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}

// carry moves what has not been moved yet.
func (m *mover) carry(ctx context.Context, from store.Export, in store.Import, at *mark) error {
	if at.Done {
		return nil
	}
	return each(ctx, from, string(at.Cursor), func(p part) error {
		at.Sums.add(&p.items)
		at.Cursor, at.Done = []byte(p.next), p.next == ""
		if p.items.Len() == 0 && !at.Done {
			return nil
		}
		raw, err := json.Marshal(at)
		if err != nil {
			return err
		}
		if err := in.Write(ctx, p.items, raw); err != nil {
			return err
		}
		m.tell(false, &at.Sums)
		return nil
	})
}

// errDiffers is a destination that did not get what was sent.
var errDiffers = errors.New("the destination differs from the source and stays unfinished; empty it and begin again")

// verify reads the destination.
func (m *mover) verify(ctx context.Context, to Destination, want store.Head, sums Sums) (err error) {
	x, err := to.Export(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, x.Close()) }()
	var found Sums
	err = each(ctx, x, "", func(p part) error {
		found.add(&p.items)
		m.tell(true, &found)
		return nil
	})
	if err != nil {
		return err
	}
	if found != sums {
		return fmt.Errorf("%w: %s", errDiffers, found.difference(sums))
	}
	if got := x.Head(); got.LastEvent != want.LastEvent || got.Gone != want.Gone || got.LastJob < want.LastJob || got.LastDoc < want.LastDoc {
		return fmt.Errorf("%w: its last event is %d, job %d, document %d; want %d, %d, %d", errDiffers,
			got.LastEvent, got.LastJob, got.LastDoc, want.LastEvent, want.LastJob, want.LastDoc)
	}
	return nil
}
