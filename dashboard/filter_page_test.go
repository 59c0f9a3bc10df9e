package dashboard_test

import (
	"context"
	"html"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/dashboard"
)

func TestFiltersAreCompleted(t *testing.T) {
	s := newSite(t, dashboard.Options{})
	s.submit(gq.Spec{Queue: "mail", Type: "email.send", Metadata: gq.Metadata{Tags: map[string]string{"tenant": "acme"}, CorrelationID: "order-1"}})
	// Also where no job matches, because that is where somebody looks for the right word.
	s.has(s.get("jobs?type=nothing", http.StatusOK), `<option value="mail">`, `<option value="email.send">`, `<option value="tenant=acme">`, `<option value="order-1">`)
	s.lacks(s.get("jobs?queue=other", http.StatusOK), `<option value="order-1">`) // of another queue
}

var nextPage = regexp.MustCompile(`rel="next"(?: data-further)? href="\./([^"]+)">([^<]+)<`)

// crowd submits jobs that no search looks for.
func (s *site) crowd(n int) {
	s.Helper()
	for range n / 1000 {
		specs := make([]gq.Spec, 1000)
		for i := range specs {
			specs[i] = gq.Spec{Queue: "mail", Type: "t"}
		}
		if _, err := s.queue.SubmitBatch(s.Context(), specs); err != nil {
			s.Fatal(err)
		}
	}
}

// A key is found at once, however many newer jobs there are, whatever the type and the rule.
func TestAKeyIsFoundByIndex(t *testing.T) {
	s := newSite(t, dashboard.Options{})
	s.dash.PretendSlow(0)
	plain := s.submit(gq.Spec{Queue: "mail", Type: "a", Key: gq.IdempotencyKey{Name: "welcome-7"}})
	unique := s.submit(gq.Spec{Queue: "mail", Type: "b", Key: gq.IdempotencyKey{Name: "welcome-7"}, Unique: gq.UniqueRule{While: gq.WhileLive}})
	s.crowd(3000)
	page := s.get("jobs?find=welcome-7", http.StatusOK)
	s.has(page, plain.String(), unique.String(), "Found by key", "Look further")
	s.lacks(page, "data-further") // it does not go on by itself
	s.has(s.get("jobs?find=welcome-7&cursor=newest", http.StatusOK), "Nothing found yet", "Searched 1,000 of 3,002 jobs")
	only := s.get("jobs?find=welcome-7&type=b", http.StatusOK)
	s.has(only, unique.String())
	s.lacks(only, plain.String())
	s.lacks(s.get("jobs?find=welcome-7&correlation=order-9", http.StatusOK), plain.String(), unique.String(), "Found by key")
	confirm := s.do(http.MethodPost, "jobs/bulk", map[string][]string{"csrf": {s.token(page)}, "find": {"welcome-7"}, "action": {"cancel"}}).body
	s.has(confirm, "2 jobs will be cancelled")
}

// A search that has not looked at all jobs never says that there is none. It says how far it came, and goes on from there.
func TestASearchContinues(t *testing.T) {
	s := newSite(t, dashboard.Options{})
	s.dash.PretendSlow(0)
	wanted := s.submit(gq.Spec{Queue: "mail", Type: "rare", Metadata: gq.Metadata{CorrelationID: "order-7", Tags: map[string]string{"tenant": "acme"}}})
	s.crowd(6000)
	for filter, pages := range map[string][]string{
		"find=order-7":        {"1,000 of 6,001", "2,000 of 6,001", "3,000 of 6,001", "4,000 of 6,001", "5,000 of 6,001", "6,000 of 6,001"},
		"type=rare":           {"50 of 6,001", "1,050 of 6,001", "2,050 of 6,001", "3,050 of 6,001", "4,050 of 6,001", "5,050 of 6,001"},
		"tag=tenant%3Dacme":   {"50 of 6,001", "1,050 of 6,001", "2,050 of 6,001", "3,050 of 6,001", "4,050 of 6,001", "5,050 of 6,001"},
		"correlation=nowhere": {"1,000 of 6,001", "2,000 of 6,001", "3,000 of 6,001", "4,000 of 6,001", "5,000 of 6,001", "6,000 of 6,001"},
	} {
		path := "jobs?" + filter
		for _, text := range pages {
			page := s.get(path, http.StatusOK)
			s.has(page, "Nothing found yet", "Searched "+text+" jobs", "data-further")
			s.lacks(page, "No job matches", "None")
			next := nextPage.FindStringSubmatch(page)
			if next == nil || next[2] != "Look further" {
				t.Fatalf("%s: the search cannot be continued: %q", filter, next)
			}
			path = html.UnescapeString(next[1])
		}
		page := s.get(path, http.StatusOK)
		s.lacks(page, "data-further", "Look further")
		if filter == "correlation=nowhere" {
			s.has(page, "No job matches", "All jobs were looked at.")
		} else {
			s.has(page, wanted.String())
		}
	}
	s.dash.PretendSlow(time.Minute) // in which everything is looked at
	s.has(s.get("jobs?find=order-7", http.StatusOK), wanted.String())
	// The number is a parameter of the page, so anybody can write one.
	s.lacks(s.get("jobs?find=nothing&searched=1000000", http.StatusOK), "1,002,000")
	s.get("jobs?find=nothing&cursor=x&searched=x", http.StatusBadRequest)
}

// Full pages of a search have every job once, and say exactly at how many jobs the search has looked.
func TestASearchCountsWhatItLookedAt(t *testing.T) {
	s := newSite(t, dashboard.Options{})
	s.dash.PretendSlow(time.Minute) // in which everything is looked at
	s.many(2480)                    // every second one is of the type
	path, seen := "jobs?type=import.0", make(map[string]bool)
	for _, looked := range []string{"100", "200", "300"} {
		page := s.get(path, http.StatusOK)
		rows := jobLinks.FindAllStringSubmatch(page, -1)
		for _, row := range rows {
			seen[row[1]] = true
		}
		next := nextPage.FindStringSubmatch(page)
		if len(rows) != 50 || next == nil || !strings.Contains(next[1], "searched="+looked) {
			t.Fatalf("%d jobs, and the next page is %q, want 50 and one that says %s", len(rows), next, looked)
		}
		path = html.UnescapeString(next[1])
	}
	if len(seen) != 150 {
		t.Errorf("three pages have %d jobs", len(seen))
	}
	s.dash.PretendSlow(0)
	s.has(s.get("jobs?type=import.0", http.StatusOK), "Searched 50 of 2,480 jobs")
	rare := s.submit(gq.Spec{Queue: "bulk", Type: "rare"})
	s.crowd(1000)
	s.dash.PretendSlow(time.Minute)
	page := s.get("jobs?type=rare", http.StatusOK)
	s.has(page, rare.String())
	s.lacks(page, "Searched", "Look further")
}

var jobLinks = regexp.MustCompile(`class="mono" href="\./jobs/([^"]+)" data-open`)

// unindexed is a queue that does not know the scope of a key.
type unindexed struct{ gq.Driver }

func (q unindexed) List(ctx context.Context, query gq.Query) (gq.Page, error) {
	if len(query.Keys) > 0 {
		return gq.Page{}, nil
	}
	return q.Driver.List(ctx, query)
}

// The key of a finished job is found by looking at the jobs if the index does not know its scope.
func TestAKeyWithoutAnIndexIsSearchedFor(t *testing.T) {
	s := newSite(t, dashboard.Options{})
	d, err := dashboard.New(unindexed{s.queue}, dashboard.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	s.server.Config.Handler = d
	d.PretendSlow(time.Minute)
	id := s.submit(gq.Spec{Queue: "mail", Type: "gone", Key: gq.IdempotencyKey{Name: "order-7"}})
	if _, err := s.queue.Cancel(t.Context(), id, ""); err != nil {
		t.Fatal(err)
	}
	s.crowd(3000)
	s.has(s.get("jobs?find=order-7", http.StatusOK), id.String())
	s.has(s.get("jobs?find=order-8", http.StatusOK), "All jobs were looked at.")
}

func TestBulkActionsByCorrelation(t *testing.T) {
	s := newSite(t, dashboard.Options{})
	for _, id := range []string{"order-1", "order-1", "order-1", "order-2"} {
		s.submit(gq.Spec{Queue: "mail", Type: "email.send", Metadata: gq.Metadata{CorrelationID: id}})
	}
	page := s.get("jobs?correlation=order-1", http.StatusOK)
	s.has(page, "Cancel all")
	confirm := s.do(http.MethodPost, "jobs/bulk", map[string][]string{"csrf": {s.token(page)}, "correlation": {"order-1"}, "action": {"cancel"}}).body
	s.has(confirm, "3 jobs will be cancelled", "order-1")
	for _, step := range []struct{ state, action, text string }{
		{"scheduled", "cancel", "3 jobs were cancelled"}, {"cancelled", "replay", "3 jobs were submitted again."}, {"cancelled", "purge", "3 jobs were removed."},
	} {
		s.has(s.get(s.post(confirm, "jobs/bulk", "correlation", "order-1", "state", step.state, "action", step.action, "confirm", "1"), http.StatusOK), step.text)
	}
	if c, err := s.queue.Counts(t.Context(), "mail"); err != nil || c[0].Live() != 4 || c[0].By[gq.StatusCancelled] != 0 {
		t.Errorf("there are %+v, %v", c, err)
	}
	// By a key.
	s.submit(gq.Spec{Queue: "mail", Type: "email.send", Key: gq.IdempotencyKey{Name: "welcome"}})
	s.has(s.get(s.post(confirm, "jobs/bulk", "find", "welcome", "action", "cancel", "confirm", "1"), http.StatusOK), "1 job was cancelled")
}

// unavailable is a queue whose store does not answer.
type unavailable struct{ gq.Driver }

func (unavailable) Stats(context.Context) (gq.Stats, error) {
	return gq.Stats{}, gq.ErrUnavailable.Errorf("the database does not answer")
}

func TestAPageWithoutAStoreTriesAgain(t *testing.T) {
	s := newSite(t, dashboard.Options{})
	d, err := dashboard.New(unavailable{s.queue}, dashboard.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	s.server.Config.Handler = d
	a := s.do(http.MethodGet, "", nil)
	if a.StatusCode != http.StatusServiceUnavailable || a.Header.Get("Refresh") != "5" {
		t.Errorf("the page is %d, refresh %q", a.StatusCode, a.Header.Get("Refresh"))
	}
	s.has(a.body, "The database does not answer.", "tries again every 5 seconds")
	if a := s.do(http.MethodGet, "jobs/nonsense", nil); a.Header.Get("Refresh") != "" {
		t.Error("a page that is not there is loaded again and again")
	}
}

func TestAnEndedSessionSaysSo(t *testing.T) {
	access := guests{"read-mail": {"mail"}}
	s := newSite(t, dashboard.Options{Access: access})
	s.lacks(s.get("jobs", http.StatusUnauthorized), "session has ended")
	s.signIn("read-mail")
	delete(access, "read-mail") // revoked
	s.has(s.get("jobs?queue=mail", http.StatusUnauthorized), "Your session has ended. Sign in again.", `value="jobs?queue=mail"`)
}
