package dashboard_test

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/dashboard"
)

// stuck is a queue that cannot be changed for the moment.
type stuck struct{ *gq.Client }

func (stuck) Pause(context.Context, string) (gq.Queue, error) {
	return gq.Queue{}, gq.ErrUnavailable.Errorf("the database does not answer")
}

// serveAlso replaces the dashboard of a site by one over another driver.
func (s *site) serveAlso(q gq.Driver, o dashboard.Options) {
	s.Helper()
	d, err := dashboard.New(q, o)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(d.Close)
	s.server.Config.Handler = d
}

// An action that failed is not repeated by itself, and the page leads back to where it was sent from.
func TestAFailedActionLeadsBack(t *testing.T) {
	s := newSite(t, dashboard.Options{})
	s.serveAlso(stuck{s.queue}, dashboard.Options{})
	s.submit(gq.Spec{Queue: "mail", Type: "t"})
	form := url.Values{"csrf": {s.token(s.get("queue?name=mail", http.StatusOK))}, "name": {"mail"}}
	for referer, back := range map[string]bool{
		s.server.URL + "/queue?name=mail": true, "": false, "https://evil.example/": false, "javascript:alert(1)": false, "//evil.example/x": false, "http://%zz/": false,
	} {
		a := s.do(http.MethodPost, "queue/pause", form, func(r *http.Request) { r.Header["Referer"] = []string{referer} })
		if a.StatusCode != http.StatusServiceUnavailable || a.Header.Get("Refresh") != "" {
			t.Errorf("from %q: %d, refresh %q", referer, a.StatusCode, a.Header.Get("Refresh"))
		}
		s.has(a.body, "The database does not answer.")
		s.lacks(a.body, "tries again", "Try again", "evil.example", "javascript:")
		if got := strings.Contains(a.body, `href="`+s.server.URL+`/queue?name=mail">Back<`); got != back {
			t.Errorf("from %q: leads back %v", referer, got)
		}
	}
}

// The address of a confirmation leads to the jobs of its filter when a browser asks for it again.
func TestAConfirmationLeadsBackToItsJobs(t *testing.T) {
	s := newSite(t, dashboard.Options{})
	s.submit(gq.Spec{Queue: "mail", Type: "t"})
	s.has(s.get("jobs?queue=mail&state=scheduled", http.StatusOK), `action="./jobs/bulk?queue=mail&amp;state=scheduled"`)
	token := s.token(s.get("queue?name=mail", http.StatusOK))
	a := s.do(http.MethodGet, "jobs/bulk?queue=mail&state=scheduled&action=cancel&confirm=1&csrf="+token, nil)
	if a.StatusCode != http.StatusSeeOther || a.Header.Get("Location") != "../jobs?queue=mail&state=scheduled" {
		t.Errorf("%d %s", a.StatusCode, a.Header.Get("Location"))
	}
	if counts, err := s.queue.Counts(t.Context(), "mail"); err != nil || counts[0].By[gq.StatusScheduled] != 1 {
		t.Errorf("there are %+v, %v", counts, err)
	}
	s.has(s.get("queue/limits?name=mail", http.StatusOK), `action="../queue/limits?name=mail"`)
}

// A link on another site: browsers keep a strict cookie back, and send it when the page loads itself again.
func TestALinkOnAnotherSite(t *testing.T) {
	s := newSite(t, dashboard.Options{Access: guests{"all": {"mail", ""}}})
	from := func(site string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", site) }
	}
	for site, again := range map[string]string{"cross-site": "0", "same-origin": "", "none": ""} {
		a := s.do(http.MethodGet, "jobs?queue=mail", nil, from(site))
		if a.StatusCode != http.StatusUnauthorized || a.Header.Get("Refresh") != again {
			t.Errorf("%s: %d, refresh %q", site, a.StatusCode, a.Header.Get("Refresh"))
		}
	}
	s.signIn("all")
	if a := s.do(http.MethodGet, "jobs?queue=mail", nil, from("cross-site")); a.StatusCode != http.StatusOK || a.Header.Get("Refresh") != "" {
		t.Errorf("with the cookie: %d, refresh %q", a.StatusCode, a.Header.Get("Refresh"))
	}
}

// However long an address is, a visitor with a session gets a page of it.
func TestLongAddresses(t *testing.T) {
	s := newSite(t, dashboard.Options{Access: guests{"all": {"mail", ""}}})
	s.signIn("all")
	for _, size := range []int{1000, 7000, 9000, 30_000, 500_000} {
		long := strings.Repeat("x", size)
		for _, path := range []string{"?x=" + long, "jobs?type=" + long, "jobs/" + long, "queue?name=" + long, long} {
			a := s.do(http.MethodGet, path, nil)
			if a.StatusCode == http.StatusUnauthorized || a.StatusCode >= http.StatusInternalServerError || !strings.Contains(a.body, "Signed in as name of all") || len(a.body) > 100_000 {
				t.Errorf("%.20s with %d characters: %d, a page of %d", path, size, a.StatusCode, len(a.body))
			}
		}
	}
}

// countless is a queue system with more queues than a search looks at.
type countless struct{ *gq.Client }

func (countless) QueuesAfter(_ context.Context, after string, limit int) (list []gq.Queue, err error) {
	first := 0
	if after != "" {
		if _, err := fmt.Sscanf(after, "queue-%d", &first); err != nil {
			return nil, err
		}
		first++
	}
	for i := first; i < min(first+limit, 12_000); i++ {
		list = append(list, gq.Queue{Name: fmt.Sprintf("queue-%06d", i)})
	}
	return list, nil
}

func TestASearchForQueuesContinues(t *testing.T) {
	s := newSite(t, dashboard.Options{})
	s.serveAlso(countless{s.queue}, dashboard.Options{})
	s.has(s.get("queues?find=nowhere", http.StatusOK), "among the 10,000 looked at", `href="./queues?after=queue-009999&amp;find=nowhere"`)
	last := s.get("queues?find=nowhere&after=queue-009999", http.StatusOK)
	s.has(last, "No queue has <b>nowhere</b> in its name.")
	s.lacks(last, "Next page")
	s.has(s.get("queues?find=queue-0000", http.StatusOK), `rel="next" href="./queues?after=queue-000049&amp;find=queue-0000"`) // a full page
}

// What a worker claims leads to a page: of the queue, or of the queues that a pattern matches.
func TestWorkersLeadToTheirQueues(t *testing.T) {
	s := newSite(t, dashboard.Options{})
	s.submit(gq.Spec{Queue: "mail.eu", Type: "t"})
	if _, err := s.queue.Claim(t.Context(), gq.ClaimRequest{Worker: "w", Queues: []string{"mail.*", "mail.eu"}, N: 1}); err != nil {
		t.Fatal(err)
	}
	s.has(s.get("workers", http.StatusOK), `href="./queues?find=mail.">mail.*<`, `href="./queue?name=mail.eu">mail.eu<`)
	s.has(s.get("queues?find=mail.", http.StatusOK), "mail.eu")
}

// Addresses that no page of the dashboard has: each answers with a page that says so, never with an internal error.
func TestNonsenseInAddresses(t *testing.T) {
	s := newSite(t, dashboard.Options{})
	s.submit(gq.Spec{Queue: "mail", Type: "t"})
	for _, text := range []string{"%00", "%ff%fe", "%e2%80%ae", "-1", "18446744073709551616", "a%0d%0aSet-Cookie:x", "%25s%25n", "../..", "'", strings.Repeat("9", 400)} {
		for _, path := range []string{
			"jobs/%s", "workflows/%s", "queue?name=%s", "queue/limits?name=%s", "queues?find=%s", "queues?after=%s", "jobs?state=%s", "jobs?queue=%s", "jobs?type=%s", "jobs?tag=%s", "jobs?tag=a=%s",
			"jobs?correlation=%s", "jobs?find=%s", "jobs?since=%s", "jobs?until=%s", "jobs?cursor=%s", "jobs?searched=%s", "dead?queue=%s", "events?type=%s", "events?queue=%s", "workflows?status=%s",
			"workflows?cursor=%s", "?range=%s", "?done=%s", "jobs?done=bulk-cancel&n=%s", "rounds/%s", "rounds?before=%s", "audit?cursor=%s", "webhooks?cursor=%s", "assets/%s", "signin?next=%s",
		} {
			at := strings.ReplaceAll(path, "%s", text)
			if a := s.do(http.MethodGet, at, nil); a.StatusCode >= http.StatusInternalServerError || a.Header.Get("Set-Cookie") != "" {
				t.Errorf("%s: %d\n%s", at, a.StatusCode, a.body)
			}
		}
	}
}
