package storetest

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

// RunModel drives a store with random sequences of calls, called stories. It compares each
// answer, and after each step the state of every job, with a reference model. It fails if a
// situation listed in interesting never occurred during the run.
//
// Package rapid draws the stories: a failure prints the seed and the smallest story that
// shows it, and -rapid.checks makes a run longer.
func RunModel(t *testing.T, b Backend) {
	t.Helper()
	if checks := flag.Lookup("rapid.checks"); b.Stories > 0 && checks.Value.String() == checks.DefValue {
		if err := checks.Value.Set(strconv.Itoa(b.Stories)); err != nil {
			t.Fatal(err)
		}
		defer checks.Value.Set(checks.DefValue) //nolint:errcheck // it took a number before
	}
	tally := &tally{}
	// About one run in some thousands misses a rare situation; it then continues.
	for range mostRuns {
		rapid.Check(t, func(r *rapid.T) { tell(t, r, b, tally) })
		if t.Failed() || !tally.proves() || len(tally.missing(b)) == 0 {
			break
		}
	}
	tally.report(t, b)
}

// mostRuns is how often a run continues until every situation has occurred.
const mostRuns = 10

// StoryFailure runs the random story with a number, which is the same every time, and returns its
// failure, or "". It is for tests of the suite itself.
func StoryFailure(t testing.TB, b Backend, story int) (failure string) {
	t.Helper()
	return rapid.Custom(func(r *rapid.T) (failure string) {
		defer func() {
			if p := recover(); p != nil { // a failed story panics
				failure = fmt.Sprintf("story %d: %v", story, p)
			}
		}()
		tell(t, r, b, &tally{})
		return ""
	}).Example(story)
}

// model is the state of a running story: a store, its model, and the source of random
// values.
type model struct {
	*rapid.T
	tb      testing.TB
	backend Backend
	cfg     store.Config
	clock   *Clock
	s       store.Store
	hint    bool // Settles of the next update
	tally   *tally
	random  *rand.Rand // ids only

	now      time.Time   // of the store's clock
	times    []time.Time // every time that now has had
	jobs     map[gq.JobID]*modelJob
	leases   map[gq.LeaseID]*modelJob // of existing jobs
	issued   map[gq.LeaseID]bool
	keys     map[[2]string]*modelJob // by scope and name: the current or last owner
	tails    map[[2]string]*modelJob // by queue and order key: the last job
	queues   map[string]gq.Queue
	sequence uint64                  // the largest so far
	docs     map[[2]string]store.Doc // by kind and name
	version  uint64                  // of the newest document

	pools      map[string]int64        // capacities
	owed       map[string]time.Time    // of rates, by queue
	owedKeys   map[[2]string]time.Time // of rates of limit keys, by queue and key
	ownKeys    map[[2]string]gq.QueueKey
	turns      map[levelOf]uint64 // being served
	newest     map[keyAt]uint64   // the last turn assigned
	rearranged map[string]bool    // queues that became fair or unfair in this step

	claiming bool              // a claim is running: it may record what is due
	certain  bool              // do not guess what the claim may have recorded
	settling map[gq.JobID]verb // how each job was last settled
	followed uint64            // number of the last event read
	seen     map[gq.JobID][]gq.Event
}

// tell runs one story.
func tell(t testing.TB, r *rapid.T, b Backend, tally *tally) {
	t.Helper()
	scope := &recorder{TB: t, name: t.Name()}
	r.Cleanup(scope.cleanup)
	clock := NewClock(start)
	m := &model{
		T: r, tb: scope, backend: b, clock: clock, tally: tally, random: rand.New(rand.NewPCG(1, 2)),
		cfg: store.Config{Clock: clock, Retention: store.Retention{
			Completed: 30 * time.Second, Cancelled: 40 * time.Second, Failed: 50 * time.Second, DeadLetter: 60 * time.Second,
		}},
		now: start, times: []time.Time{start},
		jobs: make(map[gq.JobID]*modelJob), leases: make(map[gq.LeaseID]*modelJob), issued: make(map[gq.LeaseID]bool),
		keys: make(map[[2]string]*modelJob), tails: make(map[[2]string]*modelJob), queues: make(map[string]gq.Queue), seen: make(map[gq.JobID][]gq.Event),
		settling: make(map[gq.JobID]verb), docs: make(map[[2]string]store.Doc),
		pools: make(map[string]int64), owed: make(map[string]time.Time), owedKeys: make(map[[2]string]time.Time), ownKeys: make(map[[2]string]gq.QueueKey), turns: make(map[levelOf]uint64),
		newest: make(map[keyAt]uint64), rearranged: make(map[string]bool),
	}
	m.s = b.Open(scope, m.cfg)
	r.Cleanup(func() {
		if err := m.s.Close(); err != nil {
			r.Errorf("Close: %v", err)
		}
	})
	for range 2 { // about thirty steps each
		r.Repeat(map[string]func(*rapid.T){"": func(*rapid.T) {}, "step": m.step})
		m.everything()
	}
	if output, failed := scope.result(); failed {
		r.Fatalf("opening the store: %s", output)
	}
}

// weights says how many of 64 steps are of each kind, on average.
var weights = []struct {
	step  string
	times int
	take  func(*model, *rapid.T)
}{
	{"insert", 9, (*model).insert},
	{"insert alike", 2, (*model).insertAlike},
	{"claim", 11, (*model).claim},
	{"update", 13, (*model).update},
	{"pass", 9, (*model).pass},
	{"sweep", 3, (*model).sweep},
	{"release", 3, (*model).release},
	{"collect", 2, (*model).collect},
	{"purge", 1, (*model).purge},
	{"configure", 2, (*model).configure},
	{"list", 2, (*model).list},
	{"documents", 2, (*model).documents},
	{"due", 1, (*model).due},
	{"get", 1, (*model).get},
	{"peek", 1, (*model).peek},
	{"reopen", 1, (*model).reopen},
	{"clock back", 1, (*model).clockBack},
}

// drawStep draws a step. Package rapid prefers small numbers, which would favour a few
// kinds of steps, so it draws single bits, which are fair.
func drawStep(r *rapid.T) string {
	n := 0
	for bit := range 6 {
		if rapid.Bool().Draw(r, "bit") {
			n |= 1 << bit
		}
	}
	for _, w := range weights {
		if n -= w.times; n < 0 {
			return w.step
		}
	}
	panic("storetest: the weights are not 64 in all")
}

// step takes one step and compares every job.
func (m *model) step(r *rapid.T) {
	step := rapid.Custom(drawStep).Draw(r, "step")
	m.claiming = step == "claim"
	for _, w := range weights {
		if w.step == step {
			w.take(m, r)
		}
	}
	m.reconcile()
	m.claiming = false
	clear(m.rearranged)
}

// ok ends the story if a whole call failed.
func (m *model) ok(call string, err error) {
	m.Helper()
	if err != nil {
		m.Fatalf("%s: %v", call, err)
	}
}

func (m *model) happened(what string) { m.tally.add(what) }

// sorted returns all jobs in order of submission.
func (m *model) sorted() []*modelJob {
	all := make([]*modelJob, 0, len(m.jobs))
	for _, j := range m.jobs {
		all = append(all, j)
	}
	slices.SortFunc(all, func(a, b *modelJob) int {
		if a.s.Sequence < b.s.Sequence {
			return -1
		}
		return 1
	})
	return all
}

// until moves the clock.
func (m *model) until(t time.Time) {
	m.clock.Set(t)
	if t.After(m.now) {
		m.now = t
		m.times = append(m.times, t)
	}
}

// pass advances the clock, mostly to a time at which something is due.
func (m *model) pass(r *rapid.T) {
	var instants []time.Time
	for _, j := range m.jobs {
		for _, t := range []time.Time{j.due(), j.lifeEnd(), j.deadline(), j.s.RunAt, j.key, m.kept(j)} {
			if t.After(m.now) {
				instants = append(instants, t)
			}
		}
	}
	slices.SortFunc(instants, time.Time.Compare)
	instants = slices.CompactFunc(instants, time.Time.Equal)
	if len(instants) == 0 || rapid.IntRange(0, 4).Draw(r, "just pass") == 0 {
		m.until(m.now.Add(rapid.SampledFrom([]time.Duration{time.Second, 1, 3 * time.Second, 15 * time.Second}).Draw(r, "for")))
		return
	}
	next := instants[min(len(instants)-1, rapid.SampledFrom([]int{0, 0, 0, 1, 2, 4}).Draw(r, "instant"))]
	m.until(next.Add(rapid.SampledFrom([]time.Duration{0, 0, -1, 1}).Draw(r, "off")))
}

// kept returns until when a finished job is kept, zero for a live one.
func (m *model) kept(j *modelJob) time.Time {
	keep := map[gq.Status]time.Duration{
		gq.StatusCompleted: m.cfg.Retention.Completed, gq.StatusCancelled: m.cfg.Retention.Cancelled,
		gq.StatusFailed: m.cfg.Retention.Failed, gq.StatusDeadLetter: m.cfg.Retention.DeadLetter,
	}[j.s.Status]
	if keep == 0 {
		return time.Time{}
	}
	if own := j.spec.Policy.Retention; own > 0 {
		keep = own
	}
	return j.s.CompletedAt.Add(keep)
}

// clockBack sets the clock back, with or without a restart. The store's time stands still
// until the clock has caught up. The commit before that tells the store the current time.
func (m *model) clockBack(r *rapid.T) {
	m.submit([]store.Group{store.One(rapid.Custom(m.drawSpec).Draw(r, "spec"))})
	m.clock.Set(m.now.Add(-rapid.SampledFrom([]time.Duration{1, time.Second, time.Hour}).Draw(r, "back")))
	m.happened("clock set back")
	if rapid.Bool().Draw(r, "reopen") {
		m.reopen(r)
	}
}

func (m *model) reopen(*rapid.T) {
	if m.backend.Reopen == nil {
		return
	}
	m.s = m.backend.Reopen(m.tb, m.s, m.cfg)
	m.happened("reopen")
	m.readDocs()
}

// configure changes a queue.
func (m *model) configure(r *rapid.T) {
	q := machine.NewQueue(rapid.SampledFrom(queueNames).Draw(r, "queue"))
	q.Paused = rapid.IntRange(0, 3).Draw(r, "paused") == 0
	q.MaxRunning = rapid.SampledFrom([]int{0, 0, 1, 2}).Draw(r, "max running")
	q.MaxDepth = rapid.SampledFrom([]int{0, 0, 0, 3, 8}).Draw(r, "max depth")
	m.limit(r, &q)
	m.ok("PutQueue", m.s.PutQueue(m.Context(), q))
	m.rerated(q.Name, func() { m.configured(q) })
	if rapid.Bool().Draw(r, "limits of a key") {
		m.putKey(r, q.Name)
	}
}

// tally counts events over all stories of a run.
type tally struct {
	mu    sync.Mutex
	times map[string]int // guarded by mu while stories run
}

func (t *tally) add(what string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.times == nil {
		t.times = make(map[string]int)
	}
	t.times[what]++
}

// interesting lists what must occur in a run of the usual length.
var interesting = []string{
	"claim", "claim of a lost job", "claim of a due job", "claim in a paused queue", "claim at MaxRunning", "hold lost", "lease lost",
	"COMPLETED", "FAILED", "DEAD_LETTER", "CANCELLED", "attempts_exhausted", "lifetime", "start_deadline", "execution timeout", "retry", "released",
	"stale refused", "settlement repeated", "illegal refused", "cancel requested", "renewed",
	"jobs alike", "key taken, same", "key taken, different", "key free again", "duplicate id", "invalid", "cycle", "queue full",
	"unique key free again", "unique, existing", "unique, refused", "unique, replaced", "unique, debounced", "unique, throttled", "unique, throttled and waiting",
	"dependent of a replaced job", "order key, behind another",
	"rescheduled SCHEDULED", "rescheduled DELAYED", "dependent scheduled", "dependent FAILED", "dependent DEAD_LETTER", "dependent CANCELLED", "two generations",
	"collected", "reopen", "clock set back", "pages", "swept", "claim beside a limit", "claim at a rate", "claim at the rate of a key", "own limits of a key", "another rate for a key that owes", "claim told to come back", "turn", "rearranged", "document written", "document deleted", "document conflict",
}

// proves reports whether a run was long enough for everything to occur.
func (t *tally) proves() bool { return t.times["step"] >= 3000 }

// missing lists what never occurred.
func (t *tally) missing(b Backend) (missing []string) {
	for _, what := range interesting {
		if t.times[what] == 0 && !(what == "reopen" && b.Reopen == nil) {
			missing = append(missing, what)
		}
	}
	return missing
}

// report fails a run in which something in interesting never occurred.
func (t *tally) report(tb testing.TB, b Backend) {
	tb.Helper()
	missing := t.missing(b)
	tb.Logf("what happened: %v", t.times)
	switch {
	case len(missing) == 0:
	case !t.proves():
		tb.Logf("too short a run to prove much, with %d steps: there was no %s", t.times["step"], strings.Join(missing, ", no "))
	default:
		tb.Errorf("%d steps prove less than they should: there was no %s", t.times["step"], strings.Join(missing, ", no "))
	}
}
