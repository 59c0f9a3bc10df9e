package dashboard

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"

	"github.com/gopherqueue/gq"
)

// Limits of the page of dead letters.
const (
	maxDead    = 1000 // jobs that are grouped
	maxGrouped = 100  // groups that are shown
	replayers  = 16   // jobs that are submitted at the same time; they share commits
)

// deadGroup is a set of dead letters with the same type and a similar error.
type deadGroup struct {
	Type     string
	Category string
	Code     string
	Message  string // of the newest one
	Pattern  string // the message without numbers and ids, or the reason
	Count    int
	Newest   time.Time
	Oldest   time.Time
	Queues   []string
	Example  gq.JobID
}

// Key identifies the group in a form.
func (g *deadGroup) Key() string {
	return strings.Join([]string{g.Type, g.Category, g.Code, g.Pattern}, "\x1f")
}

type deadView struct {
	Groups []deadGroup
	Total  int  // dead letters in the groups
	Before int  // dead letters that were replayed and are in no group
	More   bool // there are older ones
	Hidden int  // groups that are not shown
	Queue  string
	Queues []string
}

func (d *Dashboard) dead(v *visit) error {
	view := deadView{Queue: clean(v.r.URL.Query().Get("queue"), gq.MaxNameBytes)}
	jobs, more, err := v.deadJobs(view.Queue)
	if err != nil {
		return err
	}
	view.Before, view.More = len(jobs), more
	if jobs, err = v.notReplayed(jobs); err != nil {
		return err
	}
	view.Total = len(jobs)
	view.Before -= view.Total
	view.Groups = groupDead(jobs)
	if len(view.Groups) > maxGrouped {
		view.Hidden = len(view.Groups) - maxGrouped
		view.Groups = view.Groups[:maxGrouped]
	}
	if view.Queues, err = v.queueNames(); err != nil {
		return err
	}
	v.watch = "all"
	return v.show("dead", "Dead letters", view)
}

// deadJobs reads the newest dead letters.
func (v *visit) deadJobs(queue string) (jobs []gq.Job, more bool, err error) {
	q := gq.Query{Queue: queue, Statuses: []gq.Status{gq.StatusDeadLetter}, Limit: 1000, MaxScan: maxSearched}
	for len(jobs) < maxDead {
		page, err := v.d.queue.List(v.ctx, q)
		if err != nil {
			return nil, false, err
		}
		jobs = append(jobs, page.Jobs...)
		if q.Cursor = page.Next; page.Next == "" {
			return jobs, false, nil
		}
		if len(page.Jobs) == 0 { // all of foreign queues
			break
		}
	}
	return jobs, q.Cursor != "", nil
}

// groupOf returns the group of a dead letter.
func groupOf(j *gq.Job) deadGroup {
	g := deadGroup{Type: j.Spec.Type, Message: j.State.Reason}
	if f := j.State.Failure; f != nil {
		g.Category, g.Code = f.Category.String(), f.Code
		if f.Message != "" {
			g.Message = f.Message
		}
	}
	g.Pattern = pattern(g.Message)
	return g
}

// groupDead groups dead letters, the largest group first.
func groupDead(jobs []gq.Job) []deadGroup {
	byKey := make(map[string]*deadGroup)
	for i := range jobs {
		j := &jobs[i]
		g := groupOf(j)
		have := byKey[g.Key()]
		if have == nil {
			have = &g
			have.Example = j.State.ID
			byKey[g.Key()] = have
		}
		have.Count++
		if at := j.State.CompletedAt; at.After(have.Newest) {
			have.Newest = at
		}
		if at := j.State.CompletedAt; have.Oldest.IsZero() || at.Before(have.Oldest) {
			have.Oldest = at
		}
		if !slices.Contains(have.Queues, j.Spec.Queue) && len(have.Queues) < 10 {
			have.Queues = append(have.Queues, j.Spec.Queue)
		}
	}
	list := make([]deadGroup, 0, len(byKey))
	for _, g := range byKey {
		list = append(list, *g)
	}
	slices.SortFunc(list, func(a, b deadGroup) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Key(), b.Key()))
	})
	return list
}

// pattern is the beginning of a message without what differs from job to job: numbers and ids.
func pattern(message string) string {
	message = oneLine(message)
	var out strings.Builder
	for field := range strings.FieldsSeq(message) {
		if out.Len() > 0 {
			out.WriteByte(' ')
		}
		if strings.ContainsFunc(field, unicode.IsDigit) {
			field = "#"
		}
		out.WriteString(field)
		if out.Len() > 120 {
			break
		}
	}
	return out.String()
}

// replayDead submits the jobs of a group again, and removes the dead letters if the visitor
// wants that.
func (d *Dashboard) replayDead(v *visit) error {
	key, queue, remove := v.r.PostForm.Get("group"), v.r.PostForm.Get("queue"), v.r.PostForm.Get("remove") != ""
	jobs, _, err := v.deadJobs(queue)
	if err == nil {
		jobs, err = v.notReplayed(jobs)
	}
	if err != nil {
		return err
	}
	jobs = slices.DeleteFunc(jobs, func(j gq.Job) bool {
		g := groupOf(&j)
		return g.Key() != key
	})
	if len(jobs) == 0 {
		return gq.ErrNotFound.Errorf("this group has no dead letters any more")
	}
	n, err := v.replayAll(jobs, remove)
	if v.audit("replay group", fmt.Sprintf("%d of %d dead letters of type %.80s", n, len(jobs), jobs[0].Spec.Type), err) != nil && n == 0 {
		return err
	}
	return v.done("dead", "dead-replay", "n", strconv.Itoa(n), "queue", queue)
}

// replayAll submits jobs again and returns the number of new jobs and the first error.
func (v *visit) replayAll(jobs []gq.Job, remove bool) (n int, err error) {
	var next, replayed atomic.Int64
	errs := make([]error, replayers)
	var all sync.WaitGroup
	for w := range replayers {
		all.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(jobs) {
					return
				}
				result, err := v.d.queue.Replay(v.ctx, jobs[i].State.ID)
				if err == nil && !result.Existing {
					replayed.Add(1)
				}
				if err == nil && remove {
					err = v.d.queue.Purge(v.ctx, jobs[i].State.ID)
				}
				if err != nil && errs[w] == nil {
					errs[w] = err
				}
			}
		})
	}
	all.Wait()
	for _, e := range errs {
		if e != nil {
			return int(replayed.Load()), e
		}
	}
	return int(replayed.Load()), nil
}
