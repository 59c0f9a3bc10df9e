package compare

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// conclusions returns sentences that the tables support. They quote medians with ranges
// for all cells they are about, and claim a difference only if the ranges of the
// repetitions do not overlap.
func (r *Results) conclusions() (found []string) {
	say := func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }
	r.correctness(say)
	if r.Plan.Repetitions < 2 {
		say("Each cell was measured once, for %v. That shows no difference between designs: for one, repetitions are needed.", r.Plan.Duration)
	}
	r.disturbed(say)
	base := Cell{Work: r.Plan.Work[0], Mix: r.Plan.Mixes[0]}
	for _, d := range r.Plan.Designs {
		say("Design %s, jobs of %v, mix %s (submit/status/result): %s requests/s.", d, base.Work, base.mix(), r.byClients(d, base, func(f figure) string { return f.text(0) }, requestsPerSecond))
	}
	r.pairs(say)
	for _, work := range r.Plan.Work {
		if work > 0 {
			r.slots(work, say)
		}
	}
	r.rates(say)
	r.floor(say)
	say("Everything shares %d cores with the load generator, so these numbers compare processor time per request. They say nothing about networks or about more machines.", r.Environment.Cores)
	return found
}

// account sums up the answers and jobs of some rows.
type account struct {
	answers, wrong, errors, heldBack, unsent                  int
	accepted, inWindow, after, failed, lost, censored, cancel int
	allAccepted, unfinished, allLost                          int
	example                                                   string
}

func accountOf(rows []Row) (a account) {
	for _, row := range rows {
		for _, m := range row.Methods {
			a.answers += m.Requests
			for _, n := range m.Errors {
				a.errors += n
			}
		}
		a.wrong += row.Violations
		if a.example == "" && len(row.Examples) > 0 {
			a.example = row.Examples[0]
		}
		a.heldBack += row.Jobs.HeldBack
		a.unsent += row.Unsent
		a.allAccepted += row.Jobs.Accepted
		a.allLost += row.Jobs.Lost
		a.unfinished += row.Jobs.Unfinished
		w := row.Jobs.Window
		a.accepted += w.Accepted
		a.inWindow += w.EndedInWindow
		a.after += w.EndedAfter
		a.failed += w.Failed
		a.lost += w.Lost
		a.censored += w.Censored
		a.cancel += w.Canceled
	}
	return a
}

func (r *Results) rowsOf(design string) []Row {
	return slices.DeleteFunc(slices.Clone(r.Rows), func(row Row) bool { return row.Design != design })
}

// sound reports whether a design gave right answers and kept its jobs. Otherwise its
// speed means nothing.
func (r *Results) sound(design string) bool {
	return !slices.ContainsFunc(r.rowsOf(design), func(row Row) bool { return !row.Correct() })
}

func (r *Results) correctness(say func(string, ...any)) {
	a := accountOf(r.Rows)
	say("%d requests were measured and every answer checked: %d were wrong, %d were errors. Of %d accepted jobs, warm-up included, %d were not accounted for.",
		a.answers, a.wrong, a.errors, a.allAccepted, a.allLost+a.unfinished)
	say("Of %d jobs submitted in the measured time %d were done within it and %d after it; %d failed, %d were lost, and %d had not ended %v later (censored), of which the generator canceled %d.",
		a.accepted, a.inWindow, a.after, a.failed, a.lost, a.censored, r.Plan.Drain, a.cancel)
	for _, d := range r.Plan.Designs {
		if r.sound(d) {
			continue
		}
		a := accountOf(r.rowsOf(d))
		text := fmt.Sprintf("Design %s is not correct: %d wrong answers, %d jobs lost, %d jobs that never ended.", d, a.wrong, a.allLost, a.unfinished)
		if a.example != "" {
			text += fmt.Sprintf(" The first wrong answer: %s.", a.example)
		}
		say("%s Its speed is not compared.", text)
	}
}

// quiet is how many cores other processes may use on a quiet machine.
const quiet = 0.1

// disturbed says so if the machine was not quiet.
func (r *Results) disturbed(say func(string, ...any)) {
	if o := r.Environment.Others; o != nil && o.Mean > quiet {
		say("Other processes used %.2f of %d cores on average, at most %.2f in one measurement. The machine was not quiet: read the numbers below with that in mind.", o.Mean, r.Environment.Cores, o.Most)
	}
}

// byClients lists a metric for every concurrency.
func (r *Results) byClients(design string, cell Cell, text func(figure) string, m metric) string {
	var parts []string
	for _, n := range r.Plan.Concurrency {
		parts = append(parts, fmt.Sprintf("%s with %d client(s)", text(r.figure(design, cell.with(n), m)), n))
	}
	return listed(parts)
}

// pairs compares every two designs in all closed loops.
func (r *Results) pairs(say func(string, ...any)) {
	if r.Plan.Repetitions < 2 {
		return
	}
	for i, a := range r.Plan.Designs {
		for _, b := range r.Plan.Designs[i+1:] {
			if !r.sound(a) || !r.sound(b) {
				continue
			}
			for _, m := range []metric{requestsPerSecond, jobsPerSecond, submitP99, doneP50} {
				r.pair(a, b, m, say)
			}
		}
	}
}

func (r *Results) pair(a, b string, m metric, say func(string, ...any)) {
	cells, _ := r.cells()
	higherA, higherB, bounds := 0, 0, false
	least, most := math.Inf(1), math.Inf(-1)
	for _, cell := range cells {
		x, y := r.figure(a, cell, m), r.figure(b, cell, m)
		switch {
		case x.above(y):
			higherA++
		case y.above(x):
			higherB++
		}
		bounds = bounds || x.bound || y.bound
		if x.median > 0 {
			least, most = min(least, y.median/x.median), max(most, y.median/x.median)
		}
	}
	verdict := fmt.Sprintf("%s is higher than %s in %d of %d cells, %s than %s in %d, no difference shown in %d", b, a, higherB, len(cells), a, b, higherA, len(cells)-higherA-higherB)
	if higherA+higherB == 0 {
		verdict = fmt.Sprintf("no difference shown between %s and %s in any of %d cells", a, b, len(cells))
	}
	ratio := ""
	if !math.IsInf(least, 1) {
		ratio = fmt.Sprintf("; over the cells the ratio of the medians, %s to %s, goes from %.2f to %.2f", b, a, least, most)
	}
	if bounds {
		ratio += " (some are lower bounds)"
	}
	say("%s: %s%s.", upper(m.name), verdict, ratio)
}

func upper(text string) string { return strings.ToUpper(text[:1]) + text[1:] }

// slots says how well the designs use their slots.
func (r *Results) slots(work time.Duration, say func(string, ...any)) {
	limit := float64(r.Plan.Slots) / work.Seconds()
	cell := Cell{Work: work, Mix: r.Plan.Mixes[0]}
	for _, d := range r.Plan.Designs {
		say("With jobs of %v, %d slots allow %.0f jobs/s; design %s does %s.", work, r.Plan.Slots, limit, d, r.byClients(d, cell, func(f figure) string {
			return fmt.Sprintf("%s, %.0f %%,", f.text(0), 100*f.median/limit)
		}, jobsPerSecond))
	}
}

// limitsOf returns the rates that a design sustained and did not sustain, over the
// repetitions, and whether it sustained all offered rates in any of them.
func (r *Results) limitsOf(design string) (kept, not figure, all bool) {
	var keptRates, notRates []float64
	for _, l := range r.Limits {
		if l.Design != design {
			continue
		}
		keptRates = append(keptRates, l.Kept)
		if l.NotKept > 0 {
			notRates = append(notRates, l.NotKept)
		} else {
			all = true
		}
	}
	return figureOf(keptRates), figureOf(notRates), all
}

// rates says which offered load the designs sustain.
func (r *Results) rates(say func(string, ...any)) {
	for _, d := range r.Plan.Designs {
		kept, not, all := r.limitsOf(d)
		switch {
		case kept.n == 0:
		case not.n == 0:
			say("In the open loop design %s kept every rate up to %s requests/s; higher ones were not offered.", d, kept.text(0))
		case all:
			say("In the open loop design %s kept %s requests/s; in some repetitions it did not keep %s, in others it kept all that was offered.", d, kept.text(0), not.text(0))
		default:
			say("In the open loop design %s kept %s requests/s and did not keep %s.", d, kept.text(0), not.text(0))
		}
	}
	for i, a := range r.Plan.Designs {
		for _, b := range r.Plan.Designs[i+1:] {
			x, _, _ := r.limitsOf(a)
			y, _, _ := r.limitsOf(b)
			if x.n < 2 || y.n < 2 || !r.sound(a) || !r.sound(b) {
				continue
			}
			switch {
			case x.above(y):
				say("%s keeps higher rates than %s.", a, b)
			case y.above(x):
				say("%s keeps higher rates than %s.", b, a)
			default:
				say("Between the rates that %s and %s keep no difference is shown.", a, b)
			}
		}
	}
}

func (r *Results) floor(say func(string, ...any)) {
	f := r.Floor
	if f == nil {
		return
	}
	var shares []float64
	for i := range min(len(f.Node), len(f.Echo)) {
		if f.Echo[i] > 0 { // otherwise the machine stalled
			shares = append(shares, 100*f.Node[i]/f.Echo[i])
		}
	}
	say("One monolith takes %s submits/s from %d clients, a bare gRPC server that does nothing %s: %s %%.", figureOf(f.Node).text(0), f.Clients, figureOf(f.Echo).text(0), figureOf(shares).text(0))
}

func (c Cell) with(clients int) Cell {
	c.Concurrency = clients
	return c
}
