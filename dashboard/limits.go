package dashboard

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/gopherqueue/gq"
)

// limitsForm has the limits of a queue as text.
type limitsForm struct {
	MaxRunning, MaxDepth, KeyLimit string
	Rate, KeyRate                  rateForm
}

// rateForm has a rate as text.
type rateForm struct{ Count, Per, Burst string }

type limitsView struct {
	queueRow
	Form    limitsForm
	Was     limitsForm // what the visitor began to edit
	Effects []string   // what the change would do; nil before the preview
	Faults  []gq.Fault
}

func formOf(q *gq.Queue) limitsForm {
	text := func(n int) string {
		if n == 0 {
			return ""
		}
		return strconv.Itoa(n)
	}
	rate := func(r gq.Rate) rateForm {
		f := rateForm{Count: text(r.Count), Burst: text(r.Burst)}
		if r.Per > 0 {
			f.Per = r.Per.String()
		}
		return f
	}
	return limitsForm{text(q.MaxRunning), text(q.MaxDepth), text(q.KeyLimit), rate(q.Rate), rate(q.KeyRate)}
}

// changeable returns a queue whose limits the visitor may change.
func (v *visit) changeable(name string) (queueView, error) {
	found, err := v.queueView(name)
	if err == nil && !v.who.may(Admin, name) {
		err = gq.ErrDenied.Errorf("you may not change the limits of queue %.80q", name)
	}
	return found, err
}

func (d *Dashboard) editLimits(v *visit) error {
	found, err := v.changeable(v.r.URL.Query().Get("name"))
	if err != nil {
		return err
	}
	return v.show("limits", "Limits of "+found.Queue.Name, limitsView{queueRow: found.queueRow, Form: formOf(&found.Queue), Was: formOf(&found.Queue)})
}

// saveLimits shows the effect of new limits first, and then applies them.
func (d *Dashboard) saveLimits(v *visit) error {
	name := v.r.PostForm.Get("name")
	found, err := v.changeable(name)
	if err != nil {
		return err
	}
	form, was := readLimits(v.r.PostForm, ""), formOf(&found.Queue)
	if v.r.PostForm.Has("was_max_running") {
		was = readLimits(v.r.PostForm, "was_")
	}
	shown, _ := was.parse()
	wanted, faults := form.parse()
	change := func(q *gq.Queue) { // what others have changed meanwhile stays
		edit(&q.MaxRunning, shown.MaxRunning, wanted.MaxRunning)
		edit(&q.MaxDepth, shown.MaxDepth, wanted.MaxDepth)
		edit(&q.KeyLimit, shown.KeyLimit, wanted.KeyLimit)
		edit(&q.Rate, shown.Rate, wanted.Rate)
		edit(&q.KeyRate, shown.KeyRate, wanted.KeyRate)
	}
	view := limitsView{queueRow: found.queueRow, Form: form, Was: was, Faults: faults}
	if len(faults) > 0 {
		v.status = 400
		return v.show("limits", "Limits of "+name, view)
	}
	if v.r.PostForm.Get("apply") == "" {
		after := found.Queue
		change(&after)
		if view.Effects, err = v.effects(&found, &after); err != nil {
			return err
		}
		return v.show("limits", "Limits of "+name, view)
	}
	_, err = d.queue.ChangeQueue(v.ctx, name, change)
	if v.audit("change limits", "queue "+name, err) != nil {
		var invalid *gq.InvalidError
		if errors.As(err, &invalid) {
			v.status, view.Faults = 400, invalid.Faults
			return v.show("limits", "Limits of "+name, view)
		}
		return err
	}
	return v.done("queue", "limits", "name", name)
}

// edit sets a limit if the visitor wants another one than was shown.
func edit[T comparable](now *T, shown, wanted T) {
	if wanted != shown {
		*now = wanted
	}
}

func readLimits(f url.Values, prefix string) limitsForm {
	get := func(name string) string { return strings.TrimSpace(f.Get(prefix + name)) }
	rate := func(prefix string) rateForm {
		return rateForm{get(prefix + "_count"), get(prefix + "_per"), get(prefix + "_burst")}
	}
	return limitsForm{get("max_running"), get("max_depth"), get("key_limit"), rate("rate"), rate("key_rate")}
}

// parse returns the limits of a form.
func (f limitsForm) parse() (limits gq.Queue, faults []gq.Fault) {
	count := func(field, text string) int {
		if text == "" {
			return 0
		}
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 {
			faults = append(faults, gq.Fault{Field: field, Problem: fmt.Sprintf("%.40q is not a whole number; leave it empty for no limit", text)})
		}
		return n
	}
	limits.MaxRunning, limits.MaxDepth, limits.KeyLimit = count("max_running", f.MaxRunning), count("max_depth", f.MaxDepth), count("key_limit", f.KeyLimit)
	rate := func(field string, f rateForm) gq.Rate {
		r := gq.Rate{Count: count(field, f.Count), Burst: count(field+" burst", f.Burst)}
		if r.Count == 0 {
			return gq.Rate{}
		}
		r.Per = time.Second
		if f.Per != "" {
			per, err := time.ParseDuration(f.Per)
			if err != nil || per <= 0 {
				faults = append(faults, gq.Fault{Field: field + " per", Problem: fmt.Sprintf("%.40q is not a duration such as 1s or 5m", f.Per)})
			}
			r.Per = per
		}
		return r
	}
	limits.Rate, limits.KeyRate = rate("rate", f.Rate), rate("key rate", f.KeyRate)
	return limits, faults
}

// effects says what new limits would do to a queue as it is now.
func (v *visit) effects(now *queueView, after *gq.Queue) (list []string, err error) {
	before := &now.Queue
	if before.MaxRunning != after.MaxRunning || before.KeyLimit != after.KeyLimit {
		waiting, err := v.d.queue.List(v.ctx, gq.Query{Queue: before.Name, Statuses: []gq.Status{gq.StatusScheduled}, OldestFirst: true, Limit: maxInLine, MaxScan: maxSearched})
		if err != nil {
			return nil, err
		}
		list = append(list, admission(now, after, waiting.Jobs, waiting.Next != ""))
	}
	lately := pace{}
	if after.Rate.Limited() {
		if lately, err = v.pace(before.Name); err != nil {
			return nil, err
		}
	}
	return append(list, effects(now, after, lately)...), nil
}

// admission says how many of the waiting jobs may start under the old limits and under the new.
func admission(now *queueView, after *gq.Queue, waiting []gq.Job, more bool) string {
	if now.Paused {
		return "The queue is paused: no job starts before it is resumed."
	}
	which := count(int64(len(waiting)))
	if more {
		which = "the oldest " + which
	}
	was, will := now.Usage.admits(&now.Queue, waiting), now.Usage.admits(after, waiting)
	return fmt.Sprintf("Of %s that %s, %s may start now; with the new limits %s may, and %s %s until jobs end.",
		which, plural(len(waiting), "waits", "wait"), number(was), number(will), number(len(waiting)-will), plural(len(waiting)-will, "waits", "wait"))
}

// effects says in sentences what each changed limit does.
func effects(now *queueView, after *gq.Queue, lately pace) (list []string) {
	add := func(format string, args ...any) { list = append(list, fmt.Sprintf(format, args...)) }
	before, held, live := &now.Queue, now.Held(), now.Live()
	if after.MaxRunning != before.MaxRunning {
		switch free := int64(after.MaxRunning) - held; {
		case after.MaxRunning == 0:
			add("Any number of jobs may run at once; %s %s now.", number(held), plural(held, "runs", "run"))
		case free < 0:
			add("%s %s now, %s more than the new limit. They continue; no further job starts until fewer than %s run.", count(held), plural(held, "runs", "run"), number(-free), number(after.MaxRunning))
		case free == 0:
			add("%s %s now, which is the new limit: the next job starts when one ends.", count(held), plural(held, "runs", "run"))
		default:
			add("%s %s now; %s more may start.", count(held), plural(held, "runs", "run"), number(free))
		}
	}
	if after.MaxDepth != before.MaxDepth {
		switch free := int64(after.MaxDepth) - live; {
		case after.MaxDepth == 0:
			add("Submissions are never refused because of the depth.")
		case free <= 0:
			add("%s %s live now. Submissions are refused until there are fewer than %s.", count(live), plural(live, "is", "are"), number(after.MaxDepth))
		default:
			add("%s %s live now; %s more %s accepted.", count(live), plural(live, "is", "are"), number(free), plural(free, "is", "are"))
		}
	}
	if after.KeyLimit != before.KeyLimit {
		list = append(list, keyEffects(now, after)...)
	}
	if after.Rate != before.Rate {
		list = append(list, rateEffects(now, after, lately)...)
	}
	if after.KeyRate != before.KeyRate {
		if after.KeyRate.Limited() {
			add("At most %s with the same limit key %s every %s.", count(int64(after.KeyRate.Count)), plural(after.KeyRate.Count, "starts", "start"), duration(after.KeyRate.Per))
		} else {
			add("Jobs with the same limit key start as fast as workers take them.")
		}
	}
	if len(list) == 0 {
		add("Nothing changes.")
	}
	return list
}

// keyEffects says what a new limit of keys does.
func keyEffects(now *queueView, after *gq.Queue) (list []string) {
	if after.KeyLimit == 0 {
		return []string{"Jobs with the same limit key no longer wait for each other."}
	}
	list = append(list, fmt.Sprintf("At most %s with the same limit key %s at once.", count(int64(after.KeyLimit)), plural(after.KeyLimit, "runs", "run")))
	for _, k := range now.Usage.Keys {
		if limit := now.Usage.keyLimit(after, k.Key); limit > 0 && k.Used > limit {
			list = append(list, fmt.Sprintf("Key %s has %s running, %s more than that. They continue.", oneLine(k.Key), number(k.Used), number(k.Used-limit)))
		}
		if len(list) == 6 {
			break
		}
	}
	return list
}

// rateEffects says what a new rate does.
func rateEffects(now *queueView, after *gq.Queue, lately pace) (list []string) {
	if !after.Rate.Limited() {
		return []string{"Jobs start as fast as workers take them."}
	}
	rate := float64(after.Rate.Count) / after.Rate.Per.Seconds()
	list = append(list, fmt.Sprintf("At most %s %s every %s.", count(int64(after.Rate.Count)), plural(after.Rate.Count, "starts", "start"), duration(after.Rate.Per)))
	if waiting := now.Waiting(); waiting > 1 && rate > 0 {
		list = append(list, fmt.Sprintf("The %s waiting jobs take at least %s to start.", number(waiting), duration(time.Duration(float64(waiting)/rate*float64(time.Second)))))
	}
	if lately.Starts > rate {
		list = append(list, fmt.Sprintf("Jobs started at %s in the last %s, so the queue becomes slower.", perSecond(lately.Starts), duration(lately.Span)))
	}
	return list
}
