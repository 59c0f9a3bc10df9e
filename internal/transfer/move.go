// Package transfer copies everything in a store to another store, or to a file and back.
// It copies in parts and stores a mark of its progress with each, so that an interrupted
// copy can resume. Counts and checksums verify that everything has arrived before the
// destination may be used.
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

// Destination can be filled, and read again to verify the copy.
type Destination interface {
	store.Importer
	store.Exporter
}

// Options configure a copy.
type Options struct {
	// Progress, if set, is called after every part.
	Progress func(Progress)

	// Unchanged, if set, is called at the end. It returns an error if the source has
	// changed since the copy began.
	Unchanged func(ctx context.Context) error
}

// Progress is the progress of a copy.
type Progress struct {
	Verifying bool  // reading the destination back
	Done      int64 // jobs and events so far
	Total     int64 // an estimate
}

// Report says what was copied and verified.
type Report struct {
	Resumed   bool // continues an earlier run
	Sums      Sums
	LastEvent uint64
	Elapsed   time.Duration
}

// limit is the most items in one part.
const limit = 2000

// mark is the progress that the destination stores with every part.
type mark struct {
	Cursor []byte `json:"cursor"` // of the next part
	Done   bool   `json:"done"`   // this was the last part
	Sums   Sums   `json:"sums"`   // of all parts so far
}

// Copy copies everything and verifies it. If it fails, the destination stays unfinished;
// calling it again with the same source resumes the copy.
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
			return report, fmt.Errorf("mark of the unfinished copy: %w: %w", gq.ErrCorrupt, err)
		}
		report.Resumed = true
	}
	c := &copier{options: o, total: head.Jobs + int64(head.LastEvent-head.Gone)}
	if err := c.copy(ctx, from, in, &at); err != nil {
		return report, err
	}
	if f, ok := from.(*File); ok && f.sums != at.Sums {
		return report, fmt.Errorf("what was read is not what the backup says it holds: %s: %w", at.Sums.difference(f.sums), gq.ErrCorrupt)
	}
	report.Sums = at.Sums
	if err := c.verify(ctx, to, head, at.Sums); err != nil {
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

type copier struct {
	options Options
	total   int64
}

func (c *copier) report(verifying bool, s *Sums) {
	if c.options.Progress != nil {
		done := int64(s.of(kindJob).Count + s.of(kindEvent).Count)
		c.options.Progress(Progress{verifying, done, max(c.total, done)})
	}
}

// part is the result of one Read.
type part struct {
	items store.Items
	next  string
	err   error
}

// read reads parts ahead of the receiver. It stops with the context, after an error and
// after the last part.
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

// each calls visit with every part from a cursor on. When it returns, the reading
// goroutine has ended.
func each(ctx context.Context, from store.Export, cursor string, visit func(part) error) error {
	ctx, cancel := context.WithCancel(ctx)
	parts := read(ctx, from, cursor)
	defer func() {
		cancel()
		for range parts { // until the goroutine has ended
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

// copy copies the parts after the mark.
func (c *copier) copy(ctx context.Context, from store.Export, in store.Import, at *mark) error {
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
		c.report(false, &at.Sums)
		return nil
	})
}

// errDiffers means that the destination does not have what was written.
var errDiffers = errors.New("the destination differs from the source and stays unfinished; empty it and begin again")

// verify reads the destination back and compares it with the source.
func (c *copier) verify(ctx context.Context, to Destination, want store.Head, sums Sums) (err error) {
	x, err := to.Export(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, x.Close()) }()
	var found Sums
	err = each(ctx, x, "", func(p part) error {
		found.add(&p.items)
		c.report(true, &found)
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
