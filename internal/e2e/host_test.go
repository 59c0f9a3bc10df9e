package e2e_test

import (
	"context"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	pb "github.com/gopherqueue/gq/api/gopherqueue/v1"
)

// faces has a request for each HTTP face, whose response differs from a rejection.
var faces = []struct{ method, path, body string }{
	{"GET", "/v1/webhooks/secret", ""},
	{"POST", "/v1/tokens", `{"name":"thief","grants":[{"scopes":["admin"],"queues":["*"]}]}`},
	{"POST", "/v1/jobs", `{"type":"t"}`},
	{"GET", "/v1/stats", ""},
	{"GET", "/v1/events", ""},
	{"GET", "/v1/events/ws", ""},
	{"GET", "/metrics", ""},
	{"GET", "/api/scheduler/stats/snapshot", ""},
	{"GET", "/api/matching/providers", ""},
	{"GET", "/api/matching/events/ws", ""},
}

// ask sends a request with the given host name.
func (s *served) ask(host, authorization string, method, path, body string) (status int, text string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, "http://"+s.http+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	r.Host = host
	r.Header.Set("Content-Type", "application/json")
	if authorization != "" {
		r.Header.Set("Authorization", authorization)
	}
	if strings.HasSuffix(path, "/ws") {
		for name, value := range map[string]string{
			"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
			"Origin": "http://" + host,
		} {
			r.Header.Set(name, value)
		}
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer answer.Body.Close() //nolint:errcheck // read only
	if answer.StatusCode < 300 && strings.Contains(path, "/events") {
		return answer.StatusCode, "" // a stream has no end
	}
	all, err := io.ReadAll(answer.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return answer.StatusCode, string(all)
}

// A page of another site whose name resolves to this machine gets nothing, whatever
// Authorization header it invents: on a server without tokens, and without a valid token
// on a server with tokens. With a valid token the host name does not matter.
func TestAForeignHostIsRefused(t *testing.T) {
	const evil = "evil.example:8780"
	open := startServer(t, nil, "--store", "memory:")
	closed := startServer(t, []string{"GQ_ADMIN_TOKEN=bootstrap-bootstrap"}, "--store", "memory:")
	for _, s := range []*served{open, closed} {
		for _, f := range faces {
			for _, authorization := range []string{"", "x", "Bearer x", "Basic eDp4", "Bearer gq_aaaaaaaaaaaaa_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"} {
				status, text := s.ask(evil, authorization, f.method, f.path, f.body)
				if status != http.StatusForbidden || !strings.Contains(text, "foreign_host") || !strings.Contains(text, "request_id") {
					t.Errorf("tokens required %t: %s %s with Authorization %q: %d %s", s == closed, f.method, f.path, authorization, status, text)
				}
			}
		}
	}
	for _, f := range faces {
		if status, text := closed.ask(evil, "Bearer bootstrap-bootstrap", f.method, f.path, f.body); status >= 300 {
			t.Errorf("%s %s with a valid token: %d %s", f.method, f.path, status, text)
		}
		if f.path == "/v1/tokens" {
			continue // after this one the server would require tokens
		}
		if status, text := open.ask("localhost:8780", "x", f.method, f.path, f.body); status >= 300 {
			t.Errorf("%s %s as localhost: %d %s", f.method, f.path, status, text)
		}
	}
}

// The same applies to the :authority of gRPC calls, including streams.
func TestAForeignAuthorityIsRefused(t *testing.T) {
	for _, c := range []struct {
		authority, env, token string
		want                  codes.Code
	}{
		{"evil.example:8781", "", "", codes.PermissionDenied},
		{"evil.example:8781", "", "x", codes.PermissionDenied},
		{"localhost:8781", "", "", codes.OK},
		{"evil.example:8781", "bootstrap-bootstrap", "x", codes.PermissionDenied},
		{"evil.example:8781", "bootstrap-bootstrap", "bootstrap-bootstrap", codes.OK},
	} {
		s := startServer(t, []string{"GQ_ADMIN_TOKEN=" + c.env}, "--store", "memory:")
		conn, err := grpc.NewClient("passthrough:///"+s.grpc, grpc.WithAuthority(c.authority), grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close() //nolint:errcheck // the test is over
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		if c.token != "" {
			ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+c.token)
		}
		_, err = pb.NewQueuesServiceClient(conn).ListQueues(ctx, &pb.ListQueuesRequest{})
		if status.Code(err) != c.want {
			t.Errorf("%+v: %v", c, err)
		}
		events, err := pb.NewEventsServiceClient(conn).Subscribe(ctx, &pb.SubscribeRequest{})
		if err == nil {
			_, err = events.Header()
		}
		if err == nil && c.want != codes.OK {
			_, err = events.Recv()
		}
		if status.Code(err) != c.want {
			t.Errorf("subscribe: %+v: %v", c, err)
		}
		s.Signal(os.Kill)
		s.Ended()
	}
}
