package dashboard

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/gopherqueue/gq"
)

// reach is how far charts look back.
type reach struct {
	Name   string // parameter of the page
	Label  string
	Length time.Duration
	Step   time.Duration
	Unit   string // one step in words
	Layout string // of times on the axis
}

// reaches are those that a page offers; the first is the default.
var reaches = []reach{
	{"hour", "Hour", time.Hour, time.Minute, "a minute", "15:04"},
	{"day", "Day", 24 * time.Hour, 15 * time.Minute, "15 minutes", "15:04"},
	{"month", "Month", 31 * 24 * time.Hour, 6 * time.Hour, "6 hours", "2 Jan"},
}

func reachOf(name string) reach {
	if i := slices.IndexFunc(reaches, func(r reach) bool { return r.Name == name }); i >= 0 {
		return reaches[i]
	}
	return reaches[0]
}

// historyView has the charts of a page and their data.
type historyView struct {
	Reach   reach
	Reaches []reach
	Queue   string // "" is several
	Listed  int    // only so many queues of those that the page lists; 0 is all
	Charts  []chart
	Points  []gq.HistoryPoint // steps in which something happened, newest first
}

// history draws what happened in queues; without names in all that the visitor may see.
func (v *visit) history(queues ...string) (historyView, error) {
	r := reachOf(v.r.URL.Query().Get("range"))
	now := v.d.now()
	points, err := v.d.queue.QueueHistory(v.ctx, gq.HistoryQuery{Queues: queues, Since: now.Add(-r.Length), Step: r.Step})
	if err != nil {
		return historyView{}, err
	}
	return drawHistory(r, points, now), nil
}

// historyOfAll draws what happened in all queues that the visitor may see. If those are too many
// to add up, it draws the first of the listed ones.
func (v *visit) historyOfAll(listed []queueRow) (historyView, error) {
	view, err := v.history()
	switch kindOf(err) {
	case gq.KindDenied: // the visitor may see none
		return drawHistory(reachOf(""), nil, v.d.now()), nil
	case gq.KindInvalid:
		names := make([]string, min(len(listed), gq.MaxHistoryQueues))
		for i := range names {
			names[i] = listed[i].Name()
		}
		view, err = v.history(names...)
		view.Listed = len(names)
	}
	return view, err
}

// drawHistory draws points of a reach that ends now.
func drawHistory(r reach, points []gq.HistoryPoint, now time.Time) historyView {
	view := historyView{Reach: r, Reaches: reaches}
	n := len(points)
	first := now.Add(-r.Length)
	if n > 0 {
		first = points[0].Time
	}
	times := [3]string{first.UTC().Format(r.Layout), first.Add(now.Sub(first) / 2).UTC().Format(r.Layout), "now"}
	submitted, completed, failed := make([]float64, n), make([]float64, n), make([]float64, n)
	waits, runs := [2][]float64{make([]float64, n), make([]float64, n)}, [2][]float64{make([]float64, n), make([]float64, n)}
	var total gq.HistoryPoint
	busiest := int64(0)
	for i := range points {
		p := &points[i]
		bad := p.Failed + p.DeadLettered
		submitted[i], completed[i], failed[i] = float64(p.Submitted), float64(p.Completed), float64(bad)
		waits[0][i], waits[1][i] = latencies(p.Wait)
		runs[0][i], runs[1][i] = latencies(p.Run)
		total.Submitted, total.Completed, total.Failed = total.Submitted+p.Submitted, total.Completed+p.Completed, total.Failed+bad
		busiest = max(busiest, p.Completed+bad)
		if happened(p) {
			view.Points = append(view.Points, *p)
		}
	}
	slices.Reverse(view.Points)
	jobs := drawCounts("chart-jobs", "Jobs in "+r.Unit, times,
		series{"completed", "fill", "active", number(total.Completed), completed},
		series{"failed", "hatch", "bad", number(total.Failed), failed},
		series{"submitted", "line", "strong", number(total.Submitted), submitted})
	jobs.Text = fmt.Sprintf("In the last %s %s %s submitted, %s completed and %s failed or became dead letters. At most %s ended within %s.",
		r.Name, count(total.Submitted), plural(total.Submitted, "was", "were"), number(total.Completed), number(total.Failed), number(busiest), r.Unit)
	wait := durations("chart-wait", "Wait until the start", times, waits)
	run := durations("chart-run", "Time to run", times, runs)
	view.Charts = []chart{jobs, wait, run}
	return view
}

func count(n int64) string { return number(n) + plural(n, " job", " jobs") }

// happened reports whether a point has anything.
func happened(p *gq.HistoryPoint) bool {
	return p.Submitted+p.Started+p.Retried+p.Lost+p.Ended() > 0
}

// latencies returns the median and the 99th percentile in seconds, gaps if there are none.
func latencies(l gq.Latency) (p50, p99 float64) {
	if l.Count == 0 {
		return math.NaN(), math.NaN()
	}
	return l.P50.Seconds(), l.P99.Seconds()
}

// durations draws medians and 99th percentiles.
func durations(id, title string, times [3]string, of [2][]float64) chart {
	c := drawDurations(id, title, times, series{"median", "line", "active", latest(of[0]), of[0]}, series{"p99", "dash", "warn", latest(of[1]), of[1]})
	c.Text = "No job has a figure in this time."
	if !c.Empty() {
		c.Text = fmt.Sprintf("Medians between %s and %s, 99th percentiles between %s and %s; the newest are %s and %s.",
			seconds(least(of[0])), seconds(most(of[0])), seconds(least(of[1])), seconds(most(of[1])), latest(of[0]), latest(of[1]))
	}
	return c
}

func seconds(v float64) string {
	return duration(time.Duration(min(v, maxSeconds) * float64(time.Second)))
}

// latest returns the newest value that there is.
func latest(values []float64) string {
	for _, v := range slices.Backward(values) {
		if !math.IsNaN(v) {
			return seconds(v)
		}
	}
	return "–"
}

func least(values []float64) (v float64) {
	v = math.Inf(1)
	for _, one := range values {
		if one < v {
			v = one
		}
	}
	return v
}

func most(values []float64) (v float64) {
	for _, one := range values {
		if one > v {
			v = one
		}
	}
	return v
}

// rates has what happened in a queue lately, in jobs a second.
type rates struct {
	Spans []rateSpan // the shortest first
	Hour  gq.QueueActivity
}

// rateSpan has the rates of the newest minutes.
type rateSpan struct {
	Name                          string
	Submitted, Started, Completed float64 // a second
	Failures                      float64 // share of the executions that ended without success
	Ended                         bool    // there were some
}

// rates measures a queue.
func (v *visit) rates(queue string) (r rates, err error) {
	now := v.d.now()
	points, err := v.d.queue.QueueHistory(v.ctx, gq.HistoryQuery{Queues: []string{queue}, Since: now.Add(-time.Hour), Step: time.Minute})
	if err != nil {
		return r, err
	}
	hour, err := v.d.queue.QueueActivity(v.ctx, queue)
	if err != nil {
		return r, err
	}
	if len(hour) > 0 {
		r.Hour = hour[0]
	}
	for _, span := range []struct {
		name    string
		minutes time.Duration
	}{{"Last minute", 1}, {"Last 5 minutes", 5}, {"Last hour", 60}} {
		r.Spans = append(r.Spans, rateOf(span.name, points, now.Add(-span.minutes*time.Minute), now))
	}
	return r, nil
}

// rateOf returns the rates of the points since a time. The newest point is not over yet, and the
// oldest one began earlier; the rate counts the time that all of them cover.
func rateOf(name string, points []gq.HistoryPoint, since, now time.Time) rateSpan {
	r := rateSpan{Name: name}
	var first time.Time
	ended, bad := int64(0), int64(0)
	for i := range points {
		p := &points[i]
		if !p.Time.Add(time.Minute).After(since) {
			continue
		}
		if first.IsZero() {
			first = p.Time
		}
		r.Submitted += float64(p.Submitted)
		r.Started += float64(p.Started)
		r.Completed += float64(p.Completed)
		unsuccessful := p.Failed + p.DeadLettered + p.Retried
		ended, bad = ended+p.Completed+unsuccessful, bad+unsuccessful
	}
	covered := max(time.Second, now.Sub(first)).Seconds()
	r.Submitted, r.Started, r.Completed = r.Submitted/covered, r.Started/covered, r.Completed/covered
	if ended > 0 {
		r.Ended, r.Failures = true, float64(bad)/float64(ended)
	}
	return r
}

// Known reports whether anything happened in the last hour.
func (r rates) Known() bool { return happened(&r.Hour.HistoryPoint) }

// enoughStarts is the number of starts that a rate is computed from, if there were so many.
const enoughStarts = 20

// pace returns how fast a queue has been lately.
func (v *visit) pace(queue string) (p pace, err error) {
	now := v.d.now()
	for _, r := range []reach{{Length: time.Hour, Step: time.Minute}, {Length: 24 * time.Hour, Step: time.Hour}} {
		points, err := v.d.queue.QueueHistory(v.ctx, gq.HistoryQuery{Queues: []string{queue}, Since: now.Add(-r.Length), Step: r.Step})
		if err != nil {
			return p, err
		}
		if p = paceOf(points, now); p.Starts > 0 {
			break
		}
	}
	if p.Starts == 0 {
		return p, nil
	}
	hour, err := v.d.queue.QueueActivity(v.ctx, queue)
	if err != nil || len(hour) == 0 {
		return p, err
	}
	p.Run = hour[0].Run.P50
	return p, nil
}

// paceOf computes the rate of starts from the newest points that have enough of them, at least
// five. Time before the queue had anything to do does not count.
func paceOf(points []gq.HistoryPoint, now time.Time) (p pace) {
	started, from := int64(0), time.Time{}
	for i, newest := range slices.Backward(points) {
		if started >= enoughStarts && len(points)-i > 5 {
			break
		}
		if happened(&newest) {
			started += newest.Started
			from = newest.Time
		}
	}
	if started == 0 {
		return p
	}
	p.Span = max(time.Second, now.Sub(from))
	p.Starts = float64(started) / p.Span.Seconds()
	return p
}
