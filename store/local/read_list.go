package local

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/store"
	"github.com/gopherqueue/gq/store/codec"
)

func compare(a, b string) int { return cmp.Compare(a, b) }

// List implements [store.Store]. It merges a page from ordered sources, one for each
// queue and status: see pager.
func (s *Store) List(ctx context.Context, q gq.Query) (gq.Page, error) {
	if err := store.CheckQuery(&q); err != nil {
		return gq.Page{}, err
	}
	cursor, err := store.ParseCursor(q.Cursor)
	if err != nil {
		return gq.Page{}, err
	}
	var page gq.Page
	err = s.view(ctx, diskToo, func(now time.Time) (then, error) {
		from, to, err := s.window(&q, cursor)
		if err != nil {
			return nil, err
		}
		seen, next, err := s.page(&q, from, to)
		page.Next = next
		return func() error { return s.fill(&page, seen, now) }, err
	})
	if err != nil {
		return gq.Page{}, err
	}
	return page, nil
}

// fill reads the specs of a page with one iterator, since they are ordered like jobs.
// It drops jobs that have been collected meanwhile.
func (s *Store) fill(page *gq.Page, seen []listed, now time.Time) (err error) {
	if len(seen) == 0 {
		return nil
	}
	it, err := s.iterate(prefixSpec)
	if err != nil {
		return err
	}
	defer func() { err = either(err, damaged(it.Close())) }()
	page.Jobs = make([]gq.Job, 0, len(seen))
	for i := range seen {
		key := numberKey(prefixSpec, seen[i].state.Sequence)
		if !it.SeekGE(key) || !bytes.Equal(it.Key(), key) {
			if err := it.Error(); err != nil {
				return damaged(err)
			}
			continue
		}
		page.Jobs = append(page.Jobs, gq.Job{State: seen[i].state.At(now)})
		job := &page.Jobs[len(page.Jobs)-1]
		err := s.assemble(job, jobExtras{flags: seen[i].flags, spec: it.Value()}, 0)
		if errors.Is(err, gq.ErrNotFound) {
			page.Jobs = page.Jobs[:len(page.Jobs)-1]
			continue
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// window turns times and a cursor into a half-open range of sequence numbers.
func (s *Store) window(q *gq.Query, cursor uint64) (from, to uint64, err error) {
	from, to = 0, s.table.lastJob+1
	if !q.CreatedAfter.IsZero() {
		if from, err = s.firstSince(q.CreatedAfter); err != nil {
			return 0, 0, err
		}
	}
	if !q.CreatedBefore.IsZero() {
		end, err := s.firstSince(q.CreatedBefore)
		if err != nil {
			return 0, 0, err
		}
		to = min(to, end)
	}
	if cursor > 0 && q.OldestFirst {
		from = max(from, cursor+1)
	} else if cursor > 0 {
		to = min(to, cursor)
	}
	return from, to, nil
}

// firstSince returns the smallest sequence number of a job created at or after an
// instant. It can search, since numbers and creation times grow together.
func (s *Store) firstSince(at time.Time) (first uint64, err error) {
	it, err := s.iterate(prefixSpec)
	if err != nil {
		return 0, err
	}
	defer func() { err = either(err, damaged(it.Close())) }()
	lo, hi := uint64(1), s.table.lastJob+1
	for lo < hi {
		mid := lo + (hi-lo)/2
		if !it.SeekGE(numberKey(prefixSpec, mid)) {
			hi = mid
			continue
		}
		seq := binary.BigEndian.Uint64(it.Key()[1:])
		spec, err := codec.DecodeSpec(it.Value())
		if err != nil {
			return 0, err
		}
		_, state, err := s.state(spec.ID)
		if err != nil {
			return 0, err
		}
		if state.CreatedAt.Before(at) {
			lo = seq + 1
		} else {
			hi = mid
		}
	}
	return lo, damaged(it.Error())
}

// iterate walks all records of a kind.
func (s *Store) iterate(prefix byte) (*pebble.Iterator, error) {
	it, err := s.db.NewIter(iterOptions(prefix))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", s.dir, err)
	}
	return it, nil
}

func iterOptions(prefix byte) *pebble.IterOptions {
	return &pebble.IterOptions{LowerBound: []byte{prefix}, UpperBound: []byte{prefix + 1}}
}
