package postgres

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/testing/pgtest"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

// deaf is a connection that, when told to, loses the next answer and is dead from then on.
type deaf struct {
	net.Conn
	lose *atomic.Bool
}

func (c deaf) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 && c.lose.CompareAndSwap(true, false) {
		return 0, errors.Join(errors.New("the answer was lost"), c.Close())
	}
	return n, err
}

// openThrough opens a store whose connections are wrapped.
func openThrough(t *testing.T, url string, cfg store.Config, wrap func(net.Conn) net.Conn) *Store {
	t.Helper()
	settings, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	dial := settings.ConnConfig.DialFunc
	settings.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return wrap(c), nil
	}
	dialect, err := newDialect(DefaultSchema)
	if err != nil {
		t.Fatal(err)
	}
	s, err := open(t.Context(), settings, dialect, cfg, false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func fastInserts(t *testing.T, s *Store, n int) []store.Inserted {
	t.Helper()
	groups := make([]store.Group, n)
	for i := range groups {
		spec := gq.Spec{ID: machine.NewJobID(random()), Queue: "q", Type: "t", Policy: machine.DefaultPolicy()}.WithDefaults()
		spec.Policy.Lifetime = time.Hour
		groups[i] = store.Group{Jobs: []gq.Spec{spec}, Mint: true}
	}
	out, err := s.Insert(t.Context(), groups)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// compare compares answers with what was stored.
func compare(t *testing.T, s *Store, answers []store.Inserted) {
	t.Helper()
	last := uint64(0)
	for _, a := range answers {
		if a.Err != nil {
			t.Fatal(a.Err)
		}
		want := a.Jobs[0].State
		found, err := s.Get(t.Context(), []store.Ref{{Job: want.ID}}, 0)
		if err != nil || found[0].Err != nil {
			t.Fatal(err, found[0].Err)
		}
		if got := found[0].Job.State; !reflect.DeepEqual(got, want) {
			t.Errorf("stored is\n%+v, answered was\n%+v", got, want)
		}
		if want.Sequence <= last || want.CreatedAt.IsZero() || machine.Due(&want) != want.CreatedAt.Add(time.Hour) {
			t.Errorf("number %d after %d, created %v, due %v", want.Sequence, last, want.CreatedAt, machine.Due(&want))
		}
		last = want.Sequence
	}
}

// TestAnswerIsLost loses the answer to a fast insert, which has the sequence numbers. The
// store must find them again and insert nothing twice.
func TestAnswerIsLost(t *testing.T) {
	lose := new(atomic.Bool)
	s := openThrough(t, pgtest.Database(t), store.Config{}, func(c net.Conn) net.Conn { return deaf{c, lose} })
	compare(t, s, fastInserts(t, s, 3))
	s.notifier.stop() // or one of its answers might be lost instead
	defer s.notifier.start(s)
	lose.Store(true)
	answers := fastInserts(t, s, 20)
	if lose.Load() {
		t.Fatal("no answer was lost")
	}
	compare(t, s, answers)
	var jobs, told int
	err := s.pool.QueryRow(t.Context(), "SELECT (SELECT count(*) FROM gq.ready), (SELECT sum(events) FROM gq.segment)").Scan(&jobs, &told)
	if err != nil || jobs != 23 || told != 2*23 {
		t.Errorf("%d jobs and %d events, want 23 and 46: %v", jobs, told, err)
	}
}

// mute is a connection that cannot cancel statements, as if the network were down.
type mute struct{ net.Conn }

func (c mute) Write(b []byte) (int, error) {
	const cancelRequest = 80877102
	if len(b) == 16 && binary.BigEndian.Uint32(b[4:]) == cancelRequest {
		return len(b), c.Close()
	}
	return c.Conn.Write(b)
}

// TestSubmissionOutlivesItsConnection cuts the connection while the statement of a
// submission waits for a lock in the server, which still executes it. The caller must get
// the true outcome.
func TestSubmissionOutlivesItsConnection(t *testing.T) {
	url := pgtest.Database(t)
	var mu sync.Mutex
	var conns []net.Conn
	s := openThrough(t, url, store.Config{}, func(c net.Conn) net.Conn {
		mu.Lock()
		defer mu.Unlock()
		conns = append(conns, c)
		return mute{c}
	})
	fastInserts(t, s, 1) // so that the statement is prepared
	s.notifier.stop()    // or it would use another connection
	defer s.notifier.start(s)
	other, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close(context.WithoutCancel(t.Context()))
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	tx, err := other.Begin(t.Context())
	if err == nil {
		_, err = tx.Exec(t.Context(), "LOCK TABLE gq.ready IN EXCLUSIVE MODE")
	}
	if err != nil {
		t.Fatal(err)
	}
	waiting := func(n int) {
		t.Helper()
		for got := 0; got != n; {
			err := other.QueryRow(ctx, `
				SELECT count(*) FROM pg_locks
				WHERE NOT granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`).Scan(&got)
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	answers := make(chan []store.Inserted, 1)
	go func() { answers <- fastInserts(t, s, 3) }()
	waiting(1)
	mu.Lock()
	for _, c := range conns {
		_ = c.Close()
	}
	mu.Unlock()
	waiting(2) // the retried insert waits too
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	select {
	case got := <-answers:
		compare(t, s, got)
	case <-ctx.Done():
		t.Fatal("there was no answer")
	}
	var jobs, told int
	err = other.QueryRow(t.Context(), "SELECT (SELECT count(*) FROM gq.ready), (SELECT sum(events) FROM gq.segment)").Scan(&jobs, &told)
	if err != nil || jobs != 4 || told != 2*4 {
		t.Errorf("%d jobs and %d events, want 4 and 8: %v", jobs, told, err)
	}
}

// leap is a clock that a test advances.
type leap struct{ at atomic.Int64 }

func (l *leap) Now() time.Time { return time.Unix(0, l.at.Load()).UTC() }

// TestSegmentOfAnEarlierDay keeps a spare segment from before midnight. It must not get
// events of a job of the new day.
func TestSegmentOfAnEarlierDay(t *testing.T) {
	clock := new(leap)
	clock.at.Store(time.Date(2100, 1, 1, 23, 59, 0, 0, time.UTC).UnixNano())
	s, err := Open(t.Context(), pgtest.Database(t), store.Config{Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	compare(t, s, fastInserts(t, s, 2))
	if len(s.spares) != 1 {
		t.Fatalf("%d segments were taken ahead, want 1", len(s.spares))
	}
	before := <-s.spares
	s.keepSpare(before)
	clock.at.Add(int64(time.Hour))
	if err := s.startDay(t.Context()); err != nil {
		t.Fatal(err)
	}
	compare(t, s, fastInserts(t, s, 2))
	var wrong, days int
	err = s.pool.QueryRow(t.Context(), `
		SELECT count(*) FILTER (WHERE s.id = $1), count(DISTINCT j.seq >> 32)
		FROM gq.ready AS j, gq.segment AS s`, before).Scan(&wrong, &days)
	if err != nil || wrong > 0 || days != 2 {
		t.Errorf("the segment of the day before was used: %t; the jobs are of %d days, want 2: %v", wrong > 0, days, err)
	}
}

// TestSegmentAtHandIsInUse lets another transaction use the spare segment, as after a
// failover to a server that did not know it was taken. The next insert must still succeed.
func TestSegmentAtHandIsInUse(t *testing.T) {
	s, err := Open(t.Context(), pgtest.Database(t), store.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	compare(t, s, fastInserts(t, s, 2))
	spare := <-s.spares
	s.keepSpare(spare)
	if _, err := s.pool.Exec(t.Context(), "INSERT INTO gq.segment (id, seq, time, events, token) VALUES ($1, 0, 0, 0, $2)", spare, random()); err != nil {
		t.Fatal(err)
	}
	compare(t, s, fastInserts(t, s, 2))
}

// TestFastInsertsBelowAFloor announces a floor above everything. A fast insert below it
// must record its first position in gq.early, although it learns that position only from
// the statement that inserts.
func TestFastInsertsBelowAFloor(t *testing.T) {
	s, err := Open(t.Context(), pgtest.Database(t), store.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	old := fastInserts(t, s, 2)[0].Jobs[0].State
	if _, err := s.pool.Exec(t.Context(), `
		INSERT INTO gq.floor (queue, band, version, at, next, seen)
		VALUES ('q', $1, 1, ARRAY [-9223372036854775808, 0], ARRAY [9223372036854775807, 0], '0')`,
		int16(old.Priority())); err != nil {
		t.Fatal(err)
	}
	order := machine.Order(&fastInserts(t, s, 3)[0].Jobs[0].State)
	var told [][]int64
	err = s.pool.QueryRow(t.Context(), "SELECT array_agg(at) FROM gq.early WHERE queue = 'q' AND band = $1", int16(old.Priority())).Scan(&told)
	if want := [][]int64{{signed(order.Hi), signed(order.Lo)}}; err != nil || !reflect.DeepEqual(told, want) {
		t.Errorf("told is %v, want %v: %v", told, want, err)
	}
}

// TestWhichQueuesAreFast configures a queue. Without limits on inserts its jobs still take
// one round trip, which leaves a spare segment. With one the fast path is tried at most
// once.
func TestWhichQueuesAreFast(t *testing.T) {
	s, err := Open(t.Context(), pgtest.Database(t), store.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	put := func(change func(*gq.Queue)) {
		q := machine.NewQueue("q")
		change(&q)
		if err := s.PutQueue(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	}
	put(func(q *gq.Queue) { q.MaxRunning, q.KeyLimit = 5, 2 })
	compare(t, s, fastInserts(t, s, 2))
	if len(s.spares) != 1 {
		t.Error("jobs of a queue whose limits are for claims took more than one round trip")
	}
	for _, limit := range []func(*gq.Queue){
		func(q *gq.Queue) { q.MaxDepth = 1000 },
		func(q *gq.Queue) { q.Fair = true },
	} {
		put(limit)
		compare(t, s, fastInserts(t, s, 2))
		if !s.guarded.has("q") {
			t.Error("the limit of the queue was not seen")
		}
		put(func(*gq.Queue) {})
		for range 2 { // the first insert learns it, and the second takes the fast path
			compare(t, s, fastInserts(t, s, 2))
		}
		if s.guarded.has("q") || len(s.spares) != 1 {
			t.Error("that the limit is gone was not seen")
		}
	}
}
