package engine_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/internal/history"
	"github.com/gopherqueue/gq/internal/testing/pgtest"
	"github.com/gopherqueue/gq/store"
	"github.com/gopherqueue/gq/store/local"
	"github.com/gopherqueue/gq/store/postgres"
)

// busyHour makes up an hour of a queue: so many jobs a second, of which some fail and are tried
// again, with waits and runs that spread over two orders of magnitude.
func busyHour(r *rand.Rand, hour time.Time, perSecond float64) *history.Hour {
	h := new(history.Hour)
	spread := func(median time.Duration) time.Duration {
		return time.Duration(float64(median) * math.Exp(r.NormFloat64()))
	}
	for range int(perSecond * 3600) {
		at := hour.Add(time.Duration(r.Int64N(int64(time.Hour))))
		add := func(e gq.Event) {
			e.Time = at
			h.Add(&e)
		}
		add(gq.Event{Type: gq.EventSubmitted})
		add(gq.Event{Type: gq.EventStarted, Elapsed: spread(30 * time.Millisecond)})
		end := gq.Event{Type: gq.EventCompleted, LeaseState: gq.LeaseCompleted, Elapsed: spread(200 * time.Millisecond)}
		switch n := r.IntN(1000); {
		case n < 20:
			end.Type = gq.EventRetrying
		case n < 22:
			end.Type = gq.EventFailed
		case n < 23:
			end.Type = gq.EventDeadLettered
		case n < 24:
			end.Type = gq.EventCancelled
		}
		add(end)
	}
	return h
}

// fillHistory writes the history of a month for queues that are busy around the clock: the last
// day by the minute.
func fillHistory(t testing.TB, s store.Store, queues, hours int, now time.Time) {
	t.Helper()
	r := rand.New(rand.NewPCG(1, 2))
	// A few hours are drawn and used again: what counts is their size.
	var drawn [20]*history.Hour
	var alone [len(drawn)][history.DayHours][]byte // each of them at each hour of a day, because summing up minutes takes long
	for i := range drawn {
		drawn[i] = busyHour(r, now, 1)
		for hour := range alone[i] {
			var day history.Day
			day.Add(int64(hour), drawn[i])
			alone[i][hour] = day.Append(nil)
		}
	}
	var docs []store.Doc
	add := func(d store.Doc) {
		if docs = append(docs, d); len(docs) < 500 && d.Data != nil {
			return
		}
		docs = slices.DeleteFunc(docs, func(d store.Doc) bool { return d.Data == nil })
		if _, err := s.PutDocs(t.Context(), docs); err != nil {
			t.Fatal(err)
		}
		docs = docs[:0]
	}
	last := history.HourOf(now)
	minutes := last - min(int64(hours), 25) + 1 // the first hour that has them
	for q := range queues {
		name := fmt.Sprintf("tenant-%04d.mail", q)
		for hour := last - int64(hours) + 1; hour < minutes; {
			var day history.Day
			of := hour / history.DayHours
			for ; hour/history.DayHours == of && hour < minutes; hour++ {
				if err := day.Decode(alone[r.IntN(len(drawn))][hour%history.DayHours]); err != nil {
					t.Fatal(err)
				}
			}
			add(store.Doc{Kind: fmt.Sprintf("d%d", of), Name: name, Data: day.Append(nil)})
		}
		for hour := minutes; hour <= last; hour++ {
			add(store.Doc{Kind: fmt.Sprintf("h%d", hour), Name: name, Data: drawn[r.IntN(len(drawn))].Append(nil)})
		}
	}
	cursor := binary.AppendVarint([]byte{1, 0}, minutes)
	add(store.Doc{Kind: "history", Name: "cursor", Data: append(cursor, 0)})
	add(store.Doc{}) // the rest
}

const historyLimit = 20_000_000 // bytes for 100 queues

func TestHistorySize(t *testing.T) {
	if testing.Short() {
		t.Skip("-short leaves out what writes a month of history; make test runs it")
	}
	now := time.Now()
	t.Run("file", func(t *testing.T) {
		dir := t.TempDir()
		size := func() (n int64) {
			err := filepath.Walk(dir, func(_ string, info os.FileInfo, err error) error {
				if err == nil && !info.IsDir() && filepath.Ext(info.Name()) == ".sst" {
					n += info.Size()
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		s, err := local.Open(dir, local.Options{})
		if err != nil {
			t.Fatal(err)
		}
		fillHistory(t, s, 100, 31*24, now)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		// Opening it again writes the log to tables.
		if s, err = local.Open(dir, local.Options{}); err != nil {
			t.Fatal(err)
		}
		checkMonth(t, s)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if n := size(); n > historyLimit || n < 1_000_000 {
			t.Errorf("a month of 100 queues takes %d bytes", n)
		} else {
			t.Logf("%d bytes", n)
		}
	})
	t.Run("postgres", func(t *testing.T) {
		url := pgtest.Own(t).Database(t)
		s, err := postgres.Open(t.Context(), url, store.Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = s.Close() }()
		fillHistory(t, s, 100, 31*24, now)
		checkMonth(t, s)
		conn, err := pgx.Connect(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close(context.Background()) }()
		var n int64
		if err := conn.QueryRow(t.Context(), "SELECT pg_total_relation_size('gq.doc')").Scan(&n); err != nil {
			t.Fatal(err)
		}
		if n > historyLimit || n < 1_000_000 {
			t.Errorf("a month of 100 queues takes %d bytes", n)
		} else {
			t.Logf("%d bytes", n)
		}
	})
}

// checkMonth reads the month of a queue.
func checkMonth(t *testing.T, s store.Store) {
	t.Helper()
	e := newEngine(t, s, engine.Options{})
	began := time.Now()
	list := must[[]gq.HistoryPoint](t)(e.QueueHistory(t.Context(), gq.HistoryQuery{Queues: []string{"tenant-0042.mail"}, Step: time.Hour, Since: time.Now().Add(-31 * 24 * time.Hour)}))
	t.Logf("a month of a queue took %v to read", time.Since(began))
	var n int64
	for i := range list {
		n += list[i].Submitted
	}
	if n < 740*3600 {
		t.Errorf("%d jobs in %d hours", n, len(list))
	}
}

// BenchmarkQueueActivity reads the last hour of 1,000 queues that were busy all the time.
func BenchmarkQueueActivity(b *testing.B) {
	s, err := local.Open(b.TempDir(), local.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	fillHistory(b, s, 1000, 2, time.Now())
	e, err := engine.New(s, engine.Options{})
	if err != nil {
		b.Fatal(err)
	}
	names := make([]string, 1000)
	for i := range names {
		names[i] = fmt.Sprintf("tenant-%04d.mail", i)
	}
	for b.Loop() {
		list, err := e.QueueActivity(b.Context(), names...) // without names it would be cached
		if err != nil || len(list) != 1000 || list[0].Completed == 0 {
			b.Fatal(len(list), err)
		}
	}
}
