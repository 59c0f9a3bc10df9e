package dashboard

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/gopherqueue/gq"
)

// Limits of lists of jobs.
const (
	jobsPerPage = 50
	maxListed   = 1000 // jobs that a search looks at in one call
	maxSearched = 5000 // jobs that a store without an index for a filter looks at in one call
	maxTags     = 8    // tags of one filter

	fromNewest = "newest"

	searchStep = 700 * time.Millisecond // that a page searches; then it says how far it has come, and goes on
)

// jobFilter is the filter of the page, as its form has it.
type jobFilter struct {
	State, Queue, Type, Tag string
	Correlation             string
	Since, Until            string
	Find                    string // a key or correlation id
	Cursor                  string // fromNewest begins a search without an index
	Searched                int64  // jobs that a search has looked at before the cursor
}

// clean makes one line of at most so many bytes.
func clean(text string, most int) string {
	text = strings.TrimSpace(text)
	if len(text) > most {
		text = text[:whole(text, most)]
	}
	return text
}

func readFilter(q url.Values) jobFilter {
	get := func(name string) string { return clean(q.Get(name), 1024) }
	f := jobFilter{
		State: get("state"), Queue: get("queue"), Type: get("type"), Tag: get("tag"), Correlation: get("correlation"),
		Since: get("since"), Until: get("until"), Find: get("find"), Cursor: get("cursor"),
	}
	if n, err := strconv.ParseInt(get("searched"), 10, 64); err == nil && f.Cursor != "" {
		f.Searched = max(0, n)
	}
	return f
}

// Values are the parameters of the filter, without those of the page.
func (f jobFilter) Values() url.Values {
	q := url.Values{}
	for name, text := range map[string]string{
		"state": f.State, "queue": f.Queue, "type": f.Type, "tag": f.Tag, "correlation": f.Correlation, "since": f.Since, "until": f.Until, "find": f.Find,
	} {
		if text != "" {
			q.Set(name, text)
		}
	}
	return q
}

// Any reports whether the filter selects less than everything.
func (f jobFilter) Any() bool { return len(f.Values()) > 0 }

// Scans reports whether the filter names something that only a scan finds and that no call of
// the queue selects.
func (f jobFilter) Scans() bool { return f.Find != "" || f.Correlation != "" }

// groups of states, in the words of the page.
var groups = map[string][]gq.Status{
	"waiting":  {gq.StatusPending, gq.StatusDelayed, gq.StatusScheduled, gq.StatusRetrying},
	"blocked":  {gq.StatusPending, gq.StatusDelayed, gq.StatusRetrying}, // not claimable yet
	"active":   {gq.StatusClaimed, gq.StatusRunning},
	"finished": {gq.StatusCompleted, gq.StatusFailed, gq.StatusDeadLetter, gq.StatusCancelled},
}

// query returns the query of the filter and every fault in it.
func (f jobFilter) query() (q gq.Query, err error) {
	var faults []gq.Fault
	add := func(field, format string, args ...any) {
		faults = append(faults, gq.Fault{Field: field, Problem: fmt.Sprintf(format, args...)})
	}
	q = gq.Query{Queue: f.Queue, Cursor: f.Cursor, Limit: jobsPerPage, MaxScan: maxSearched}
	if f.Cursor == fromNewest {
		q.Cursor = ""
	}
	if f.State != "" {
		if list, ok := groups[f.State]; ok {
			q.Statuses = slices.Clone(list)
		} else {
			var s gq.Status
			if err := s.UnmarshalText([]byte(strings.ToUpper(f.State))); err != nil {
				add("state", "%.64q is not a state", f.State)
			}
			q.Statuses = []gq.Status{s}
		}
	}
	if f.Type != "" {
		q.Types = []string{f.Type}
	}
	for text := range strings.FieldsSeq(f.Tag) {
		name, value, ok := strings.Cut(text, "=")
		if !ok || name == "" {
			add("tag", "%.64q is not NAME=VALUE", text)
			continue
		}
		if q.Tags == nil {
			q.Tags = make(map[string]string)
		}
		if q.Tags[name] = value; len(q.Tags) > maxTags {
			add("tag", "more than %d tags", maxTags)
			break
		}
	}
	for _, bound := range []struct {
		field, text string
		to          *time.Time
	}{{"since", f.Since, &q.CreatedAfter}, {"until", f.Until, &q.CreatedBefore}} {
		if bound.text == "" {
			continue
		}
		at, ok := parseTime(bound.text)
		if !ok {
			add(bound.field, "%.64q is not a time such as 2026-01-31T14:30", bound.text)
		}
		*bound.to = at
	}
	if len(faults) > 0 {
		return q, &gq.InvalidError{Faults: faults}
	}
	return q, nil
}

// parseTime reads a time as a browser's input or an API writes it. Without a zone it is UTC.
func parseTime(text string) (time.Time, bool) {
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04", "2006-01-02T15:04:05", "2006-01-02"} {
		if at, err := time.Parse(layout, text); err == nil {
			return at, true
		}
	}
	return time.Time{}, false
}

// Picked reports whether a job has the key or correlation id of the filter.
func (f jobFilter) picked(j *gq.Job) bool {
	if f.Correlation != "" && j.Metadata.CorrelationID != f.Correlation {
		return false
	}
	return f.Find == "" || j.Spec.Key.Name == f.Find || j.Metadata.CorrelationID == f.Find
}

type jobsView struct {
	Filter  jobFilter
	Faults  []gq.Fault
	Jobs    []gq.Job
	Next    string
	Total   int64 // -1 is not counted
	Scanned bool  // there may be more on the next page although this one is not full

	Searched int64 // jobs that the search has looked at so far, earlier pages included
	Among    int64 // jobs that it looks at in all; 0 is unknown
	ByKey    bool  // an index has found the jobs on the page by their key

	Queues  []string
	Choices choices
	Bulk    []bulkAction
}

// choices complete the fields of the filter: what the newest jobs have.
type choices struct{ Types, Tags, Correlations []string }

// Limits of choices.
const (
	choiceJobs = 100 // jobs that they come from, besides those on the page
	maxChoices = 100 // of one field
)

// choices returns what the jobs on the page have and, as a filter shows only what is known
// already, the newest jobs.
func (v *visit) choices(f jobFilter, shown []gq.Job) (c choices, err error) {
	var newest gq.Page
	if f.Any() {
		newest, err = v.d.queue.List(v.ctx, gq.Query{Queue: f.Queue, Limit: choiceJobs, MaxScan: maxSearched})
		if err != nil {
			return c, err
		}
	}
	types, tags, correlations := make(map[string]bool), make(map[string]bool), make(map[string]bool)
	for _, list := range [][]gq.Job{shown, newest.Jobs} {
		for i := range list {
			j := &list[i]
			types[j.Spec.Type] = true
			for name, value := range j.Metadata.Tags {
				tags[name+"="+value] = true
			}
			if id := j.Metadata.CorrelationID; id != "" {
				correlations[id] = true
			}
		}
	}
	sorted := func(m map[string]bool) []string {
		all := slices.Sorted(maps.Keys(m))
		return all[:min(len(all), maxChoices)]
	}
	return choices{sorted(types), sorted(tags), sorted(correlations)}, nil
}

func (d *Dashboard) jobs(v *visit) error {
	f := readFilter(v.r.URL.Query())
	if to, ok := asID(f.Find); ok {
		return v.redirect(to)
	}
	view := jobsView{Filter: f, Total: -1}
	q, err := f.query()
	if err != nil {
		return v.badFilter(view, err)
	}
	page, searched, byKey, err := v.list(f, q)
	if kindOf(err) == gq.KindInvalid {
		return v.badFilter(view, err)
	}
	if err != nil {
		return err
	}
	view.Jobs, view.Next, view.ByKey = page.Jobs, page.Next, byKey
	view.Scanned = view.Next != "" && len(view.Jobs) < jobsPerPage
	if f.Scans() || q.Picks() {
		if view.Searched = f.Searched + searched; view.Scanned {
			view.Among = v.among(q)
		}
	}
	if f.Cursor == "" && !f.Scans() && !q.Picks() && q.CreatedAfter.IsZero() && q.CreatedBefore.IsZero() {
		q.Cursor = ""
		count, err := d.queue.CountWhere(v.ctx, q)
		switch kindOf(err) {
		case gq.KindDenied: // it would count foreign queues
		default:
			if err != nil {
				return err
			}
			view.Total = count.Jobs
		}
	}
	if view.Queues, err = v.queueNames(); err != nil {
		return err
	}
	if view.Choices, err = v.choices(f, view.Jobs); err != nil {
		return err
	}
	view.Bulk = v.bulkActions(f, q)
	v.watch = "all"
	if f.Queue != "" {
		v.watch = "queue:" + f.Queue
	}
	return v.show("jobs", "Jobs", view)
}

// badFilter shows the form again.
func (v *visit) badFilter(view jobsView, err error) error {
	v.status, view.Faults = 400, faultsOf(err)
	return v.show("jobs", "Jobs", view)
}

// asID returns the page of what an id names.
func asID(text string) (path string, ok bool) {
	var job gq.JobID
	if job.UnmarshalText([]byte(text)) == nil && !job.IsZero() {
		if job.Valid() {
			return "jobs/" + job.String(), true
		}
		return "workflows/" + job.String(), true
	}
	return "", false
}

// among counts the jobs that a search looks at, if that is quick and the visitor may know it.
func (v *visit) among(q gq.Query) int64 {
	count, err := v.d.queue.CountWhere(v.ctx, gq.Query{Queue: q.Queue, Statuses: q.Statuses})
	if err != nil {
		return 0 // it would count foreign queues
	}
	return count.Jobs
}

// list returns a page of jobs, and at how many it has looked. An index finds a key. Types, tags,
// correlation ids and keys in scopes that the store does not know have none: a page searches for a while, and its
// cursor is where the next one goes on.
func (v *visit) list(f jobFilter, q gq.Query) (page gq.Page, searched int64, byKey bool, err error) {
	if !f.Scans() && !q.Picks() {
		page, err = v.d.queue.List(v.ctx, q)
		return page, 0, false, err
	}
	if f.Find != "" && f.Cursor == "" && utf8.RuneCountInString(f.Find) <= gq.MaxKeyRunes {
		if page, err = v.byKey(f, q); err != nil || len(page.Jobs) > 0 {
			return page, 0, true, err
		}
	}
	all := q // jobs to look at; the page picks, because it says how many they were
	all.Types, all.Tags = nil, nil
	if f.Scans() || f.Cursor != "" {
		all.Limit = maxListed
	}
	for began := time.Now(); ; {
		some, err := v.d.queue.List(v.ctx, all)
		if err != nil {
			return gq.Page{}, 0, false, err
		}
		found, looked := len(page.Jobs), len(some.Jobs)
		for i := range some.Jobs {
			if len(page.Jobs) == jobsPerPage {
				looked = i
				break
			}
			if j := &some.Jobs[i]; f.picked(j) && q.Picked(j) {
				page.Jobs = append(page.Jobs, *j)
			}
		}
		if looked < len(some.Jobs) { // a list that ends with the last job of the page has its cursor
			page.Jobs, all.Limit = page.Jobs[:found], looked
			continue
		}
		searched += int64(looked)
		page.Next, all.Cursor = some.Next, some.Next
		if some.Next == "" || len(page.Jobs) == jobsPerPage || time.Since(began) >= v.d.searchStep {
			return page, searched, false, nil
		}
		all.Limit = maxListed
	}
}

// byKey returns the jobs with a key. There may be others with another scope, or with a correlation id that
// is equal: the cursor of the page begins the search for them.
func (v *visit) byKey(f jobFilter, q gq.Query) (page gq.Page, err error) {
	q.Keys, q.Limit = []string{f.Find}, jobsPerPage
	if page, err = v.d.queue.List(v.ctx, q); err != nil {
		return page, err
	}
	page.Jobs = slices.DeleteFunc(page.Jobs, func(j gq.Job) bool { return !f.picked(&j) })
	if len(page.Jobs) > 0 {
		page.Next = fromNewest
	}
	return page, nil
}
