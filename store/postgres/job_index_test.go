package postgres

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/testing/pgtest"
	"github.com/gopherqueue/gq/internal/testing/spec"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/match"
	"github.com/gopherqueue/gq/store"
)

// ticking is a clock that moves on with every reading, so that jobs have different ages.
type ticking struct{ at time.Time }

func (c *ticking) Now() time.Time { return c.at }

// submitMatching inserts n random jobs of a queue and returns them as rounds see them.
func submitMatching(t *testing.T, s *Store, clock *ticking, r *rand.Rand, queue string, n int) (jobs []match.Job) {
	t.Helper()
	for n > 0 {
		specs := make([]gq.Spec, min(n, 500))
		for i := range specs {
			var raw [16]byte
			for k := range raw {
				raw[k] = byte(r.Uint32())
			}
			j := match.Job{
				ID: machine.NewJobID(raw).String(), Kind: match.Kinds()[r.IntN(2)], EnqueuedAt: clock.at.Unix(), MaxFee: r.Int64N(50) * 40_000,
				SizeBytes: r.Int64N(4) << 19, Tier: []string{"", match.FreeTier, "PRO", "PREMIUM", `gq.o'x\y`}[r.IntN(5)],
			}
			jobs = append(jobs, j)
			specs[i] = gq.Spec{
				ID: machine.NewJobID(raw), Queue: queue, Type: j.Kind.String(), Policy: gq.PresetAI.Policy(), MaxFee: j.MaxFee, Tier: j.Tier,
				Attributes: map[string]string{"matching.0": fmt.Sprintf(`{"size_bytes":%d}`, j.SizeBytes)},
			}.WithDefaults()
		}
		out, err := s.Insert(t.Context(), []store.Group{{Jobs: specs}})
		if err != nil || out[0].Err != nil {
			t.Fatal(err, out)
		}
		clock.at = clock.at.Add(time.Duration(r.IntN(3)) * time.Second)
		n -= len(specs)
	}
	return jobs
}

// inOrder returns the first n jobs of each kind as the document on matching orders them.
func inOrder(p *match.Priority, jobs []match.Job, n int) (ids []string) {
	for _, k := range match.Kinds() {
		of := slices.DeleteFunc(slices.Clone(jobs), func(j match.Job) bool { return j.Kind != k })
		slices.SortFunc(of, func(a, b match.Job) int {
			return cmp.Or(cmp.Compare(p.Cached(&b), p.Cached(&a)), cmp.Compare(a.EnqueuedAt, b.EnqueuedAt), strings.Compare(a.ID, b.ID))
		})
		for _, j := range of[:min(n, len(of))] {
			ids = append(ids, j.ID)
		}
	}
	return ids
}

func listed(t *testing.T, s *Store, p *match.Priority, n int) (texts []string, ok bool) {
	t.Helper()
	ids, ok, err := s.WaitingJobs(t.Context(), p, n)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		texts = append(texts, id.String())
	}
	return texts, ok
}

// openJobIndex opens a store for n servers of one database in which nothing but the test decides whether
// the index is made and read: autovacuum takes no lock on the tables, and both may take long.
func openJobIndex(t *testing.T, clock store.Clock, parameters string, n int) (url string, nodes []*Store) {
	t.Helper()
	url = pgtest.Own(t, "autovacuum=off").Database(t) + parameters
	for range n {
		s, err := Open(t.Context(), url, store.Config{Clock: clock})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
		s.LimitJobIndex(time.Hour, time.Hour)
		nodes = append(nodes, s)
	}
	return url, nodes
}

// TestJobIndexServesThePop reads the first of 20,000 waiting jobs and checks the order and the plan:
// with the settings of the store and with those of the database, before and after ANALYZE.
func TestJobIndexServesThePop(t *testing.T) {
	spec.Covers(t, "M-117")
	for _, schema := range []string{"", "shop"} {
		clock := &ticking{time.Unix(1_900_000_000, 0)}
		waiting, parameters := 20_000, ""
		if schema != "" {
			waiting, parameters = 500, "&gq_schema="+schema
		}
		url, nodes := openJobIndex(t, clock, parameters, 1)
		s := nodes[0]
		r := rand.New(rand.NewPCG(1, 2))
		jobs := submitMatching(t, s, clock, r, "matching", waiting)
		submitMatching(t, s, clock, r, "other", 500)
		p := match.DefaultPolicy().Priority
		p.Tiers[`gq.o'x\y`] = 123_456_789
		for _, n := range []int{1, 200, 2 * waiting} {
			got, ok := listed(t, s, &p, n)
			if want := inOrder(&p, jobs, n); !ok || !slices.Equal(got, want) {
				t.Fatalf("the first %d of each kind (%v) are\n%.500q\nwant\n%.500q", n, ok, got, want)
			}
		}
		var size int
		err := s.pool.QueryRow(t.Context(), "SELECT count(*) FROM gq.report").Scan(&size)
		if err != nil || size != waiting {
			t.Errorf("the table of the index has %d rows, want the %d jobs of the queue matching alone (%v)", size, waiting, err)
		}
		if schema != "" {
			continue
		}
		check := func(when, plan string) {
			t.Helper()
			if strings.Count(plan, "Index Scan using report_") < 2 || regexp.MustCompile(`Seq Scan|Bitmap|-> +(Incremental )?Sort`).MatchString(plan) {
				t.Errorf("%s the plan is\n%s", when, plan)
			}
		}
		sql := orderOfJobs(&p).first(512)
		check("with the settings of the store", explain(t, s, sql, ""))
		if _, err := s.pool.Exec(t.Context(), "ANALYZE"); err != nil {
			t.Fatal(err)
		}
		check("after ANALYZE", explain(t, s, sql, ""))
		conn, err := pgx.Connect(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(t.Context())
		rows, err := conn.Query(t.Context(), "EXPLAIN "+sql)
		if err != nil {
			t.Fatal(err)
		}
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		check("with the settings of the database", strings.Join(lines, "\n"))
		// Jobs that no longer wait leave it.
		first, ok := listed(t, s, &p, 1)
		if !ok {
			t.Fatal("the index is not read")
		}
		id, err := gq.ParseJobID(first[0])
		if err != nil {
			t.Fatal(err)
		}
		out, err := s.Update(t.Context(), []store.Update{{Ref: store.Ref{Job: id}, Apply: func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
			return machine.Claim(s, machine.Grant{Lease: "l", Worker: "w"}, now)
		}}})
		if err != nil || out[0].Err != nil {
			t.Fatal(err, out)
		}
		jobs = slices.DeleteFunc(jobs, func(j match.Job) bool { return j.ID == first[0] })
		if got, _ := listed(t, s, &p, 3); !slices.Equal(got, inOrder(&p, jobs, 3)) {
			t.Errorf("after the first one was taken %q come first, want %q", got, inOrder(&p, jobs, 3))
		}
	}
}

// TestJobIndexOfPolicies orders jobs by random policies, each of which makes the index anew.
func TestJobIndexOfPolicies(t *testing.T) {
	clock := &ticking{time.Unix(1_900_000_000, 0)}
	_, nodes := openJobIndex(t, clock, "", 1)
	s := nodes[0]
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 3))
	jobs := submitMatching(t, s, clock, r, "matching", 60)
	for range 30 {
		p := match.Priority{
			FeeWeight: r.Int64N(1e9 + 1), AgeWeight: r.Int64N(1e9 + 1), SizeWeight: r.Int64N(1e9 + 1), TierWeight: r.Int64N(1e9 + 1),
			FeeRef: 1 + r.Int64N(match.MaxTime), AgeRefAI: 1 + r.Int64N(1e6), AgeRefQuantum: 1 + r.Int64N(1e6), SizeRef: 1 + r.Int64N(match.MaxTime),
			Tiers: map[string]int64{"FREE": r.Int64N(1e9 + 1), "PRO": r.Int64N(1e9 + 1)},
		}
		if r.IntN(4) == 0 {
			p.Tiers = nil
		}
		got, ok := listed(t, s, &p, 100)
		if want := inOrder(&p, jobs, 100); !ok || !slices.Equal(got, want) {
			t.Fatalf("seed %d: under %+v (%v) the order is\n%q\nwant\n%q", seed, p, ok, got, want)
		}
		rows, err := s.pool.Query(t.Context(), "SELECT id::text, "+orderOfJobs(&p).score+" FROM gq.report")
		if err != nil {
			t.Fatal(err)
		}
		scores := make(map[string]int64)
		var id string
		var score int64
		if _, err := pgx.ForEachRow(rows, []any{&id, &score}, func() error { scores[id] = score; return nil }); err != nil {
			t.Fatal(err)
		}
		want := make(map[string]int64)
		for _, j := range jobs {
			want[j.ID] = p.Cached(&j)
		}
		if !maps.Equal(scores, want) {
			t.Fatalf("seed %d: under %+v the scores are %v, want %v", seed, p, scores, want)
		}
	}
}

// TestJobIndexIsLeftAlone opens servers with different policies, and locks the table.
func TestJobIndexIsLeftAlone(t *testing.T) {
	clock := &ticking{time.Unix(1_900_000_000, 0)}
	_, nodes := openJobIndex(t, clock, "", 2)
	jobs := submitMatching(t, nodes[0], clock, rand.New(rand.NewPCG(1, 2)), "matching", 10)
	one, two, three := match.DefaultPolicy().Priority, match.DefaultPolicy().Priority, match.DefaultPolicy().Priority
	two.FeeWeight, three.FeeWeight = 1, 2
	expect := func(s *Store, p *match.Priority, want bool) {
		t.Helper()
		got, ok := listed(t, s, p, 10)
		if ok != want || ok && !slices.Equal(got, inOrder(p, jobs, 10)) {
			t.Errorf("the order is %q (%v), want %v", got, ok, want)
		}
	}
	expect(nodes[0], &one, true)
	expect(nodes[1], &one, true)
	expect(nodes[1], &two, true)
	expect(nodes[0], &one, false) // it made this one a moment ago: the other server has another policy
	expect(nodes[0], &two, true)
	expect(nodes[1], &two, true)

	tx, err := nodes[0].pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(t.Context()) //nolint:errcheck // it wrote nothing
	if _, err := tx.Exec(t.Context(), "LOCK TABLE gq.report IN ROW EXCLUSIVE MODE"); err != nil {
		t.Fatal(err)
	}
	expect(nodes[1], &three, false) // somebody writes
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	expect(nodes[1], &three, false) // not again at once
	expect(nodes[0], &three, true)
	expect(nodes[1], &three, true)
	if _, err := nodes[0].pool.Exec(t.Context(), "DROP INDEX gq.report_job_index"); err != nil {
		t.Fatal(err)
	}
	expect(nodes[1], &one, true)

	nodes[1].jobIndex.slow = 1 // nanosecond
	expect(nodes[1], &one, true)
	if nodes[1].jobIndex.rests.Load() == 0 {
		t.Error("a slow list has no consequence")
	}
	nodes[1].jobIndex.rests.Add(int64(time.Hour)) // 20 ns may be over already
	expect(nodes[1], &one, false)
	nodes[1].jobIndex.rests.Store(time.Now().UnixNano())
	expect(nodes[1], &one, true)
}

// TestJobIndexThatTakesTooLong makes every CREATE INDEX take a minute. A store gives up after a second, so
// that writers do not wait for long, and tries again after an hour.
func TestJobIndexThatTakesTooLong(t *testing.T) {
	clock := &ticking{time.Unix(1_900_000_000, 0)}
	_, nodes := openJobIndex(t, clock, "", 2)
	jobs := submitMatching(t, nodes[0], clock, rand.New(rand.NewPCG(1, 2)), "matching", 10)
	p := match.DefaultPolicy().Priority
	for _, s := range nodes {
		s.LimitJobIndex(0, time.Hour)
	}
	execute := func(sql string) {
		t.Helper()
		if _, err := nodes[0].pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(s *Store, want bool) {
		t.Helper()
		got, ok := listed(t, s, &p, 10)
		if ok != want || ok && !slices.Equal(got, inOrder(&p, jobs, 10)) {
			t.Errorf("the order is %q (%v), want %v", got, ok, want)
		}
	}
	execute("CREATE FUNCTION public.linger() RETURNS event_trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(60); END'")
	execute("CREATE EVENT TRIGGER linger ON ddl_command_end WHEN TAG IN ('CREATE INDEX') EXECUTE FUNCTION public.linger()")
	expect(nodes[0], false)
	execute("DROP EVENT TRIGGER linger")
	last := nodes[0].jobIndex.tried
	nodes[0].jobIndex.tried = last.Add(-2 * jobIndexAgain)
	expect(nodes[0], false) // not again soon
	nodes[0].jobIndex.tried = last.Add(-jobIndexKept)
	expect(nodes[0], true)
	expect(nodes[1], true)
}

// TestJobIndexOutlivesTheRequest makes the index for requests that have ended.
func TestJobIndexOutlivesTheRequest(t *testing.T) {
	_, nodes := openJobIndex(t, &ticking{time.Unix(1_900_000_000, 0)}, "", 2)
	p := match.DefaultPolicy().Priority
	ended, end := context.WithCancel(t.Context())
	end()
	for i, s := range nodes {
		p.FeeWeight = int64(i)
		if made, err := s.makeJobIndex(ended, orderOfJobs(&p)); !made || err != nil {
			t.Errorf("server %d: made %v, %v", i, made, err)
		}
	}
}

// TestJobIndexInNewPartitions lets a day begin after the index was made.
func TestJobIndexInNewPartitions(t *testing.T) {
	clock := &ticking{time.Unix(1_900_000_000, 0)}
	_, nodes := openJobIndex(t, clock, "", 1)
	s := nodes[0]
	r, p := rand.New(rand.NewPCG(1, 2)), match.DefaultPolicy().Priority
	jobs := submitMatching(t, s, clock, r, "matching", 10)
	if _, ok := listed(t, s, &p, 100); !ok {
		t.Fatal("there is no index")
	}
	for range 2 {
		clock.at = clock.at.Add(48 * time.Hour)
		if _, err := s.Now(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := s.startDay(t.Context()); err != nil {
			t.Fatal(err)
		}
		jobs = append(jobs, submitMatching(t, s, clock, r, "matching", 10)...)
	}
	got, ok := listed(t, s, &p, 100)
	if !ok || !slices.Equal(got, inOrder(&p, jobs, 100)) {
		t.Errorf("the order is\n%q (%v), want\n%q", got, ok, inOrder(&p, jobs, 100))
	}
	if plan := explain(t, s, orderOfJobs(&p).first(512), ""); strings.Contains(plan, "Seq Scan") || strings.Contains(plan, "->  Sort") {
		t.Errorf("the plan is\n%s", plan)
	}
}
