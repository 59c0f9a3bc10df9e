package e2e_test

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	_ "google.golang.org/grpc/encoding/gzip" // for the client here: the server is another process
	"google.golang.org/grpc/status"

	pb "github.com/gopherqueue/gq/api/gopherqueue/v1"
)

// hidden is a request in the body of another.
const hidden = "POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 17\r\n\r\n{\"type\":\"hidden\"}"

// A request whose end is ambiguous is rejected or is the last one of its connection: the
// request it hides is never executed, on any face.
func TestSmuggledRequests(t *testing.T) {
	s := startServer(t, nil, "--store", "memory:", "--limits-idle-timeout", never)
	const body = `{"type":"outer"}`
	chunked := fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(body), body)
	both := fmt.Sprintf("Content-Length: %d\r\nTransfer-Encoding: chunked\r\n", len(chunked)+len(hidden))
	for name, test := range map[string]struct{ headers, rest string }{
		"length and chunks":            {both, chunked + hidden},
		"chunks and length":            {"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n", chunked + hidden},
		"nothing in chunks":            {both, "0\r\n\r\n" + hidden},
		"two lengths":                  {fmt.Sprintf("Content-Length: 16\r\nContent-Length: %d\r\n", 16+len(hidden)), body + hidden},
		"a list of lengths":            {"Content-Length: 16, 100\r\n", body + hidden},
		"a signed length":              {"Content-Length: +16\r\n", body + hidden},
		"a negative length":            {"Content-Length: -1\r\n", body + hidden},
		"an unknown encoding":          {"Transfer-Encoding: xchunked\r\n", chunked + hidden},
		"two encodings":                {"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n", chunked + hidden},
		"a list of encodings":          {"Transfer-Encoding: chunked, identity\r\n", chunked + hidden},
		"a strange space":              {"Transfer-Encoding:\x0bchunked\r\n", chunked + hidden},
		"a space before a colon":       {"Content-Length : 16\r\n", body + hidden},
		"encoding with a space":        {"Content-Length: 16\r\nTransfer-Encoding : chunked\r\n", body + hidden},
		"a carriage return on its own": {"Content-Length: 16\r\nX: a\rTransfer-Encoding: chunked\r\n", body + hidden},
		"a zero byte":                  {"Content-Length: 16\r\nX: a\x00b\r\n", body + hidden},
		"two hosts":                    {"Host: y\r\nContent-Length: 16\r\n", body + hidden},
		"an endless chunk":             {"Transfer-Encoding: chunked\r\n", "FFFFFFFFFFFFFFFFF\r\n" + body + hidden},
	} {
		for _, path := range []string{"/v1/jobs", "/v1/scheduler/none", "/healthz"} {
			conn, err := net.Dial("tcp", s.http)
			if err != nil {
				t.Fatal(err)
			}
			_ = conn.SetDeadline(time.Now().Add(patience))
			_, _ = io.WriteString(conn, "POST "+path+" HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"+test.headers+"\r\n"+test.rest) // it may be rejected before its end
			answer, err := io.ReadAll(conn)
			conn.Close()
			if n := strings.Count(string(answer), "HTTP/1.1 "); n > 1 || strings.Contains(string(answer), "hidden") {
				t.Errorf("%s to %s: %d answers, the end of the connection %v:\n%s", name, path, n, err, answer)
			}
			if ne, ok := err.(net.Error); ok && ne.Timeout() { //nolint:errorlint // of a connection
				t.Errorf("%s to %s: the connection stays open after\n%s", name, path, answer)
			}
		}
	}
	if out := s.gq("job", "list", "--json"); out.status != 0 || strings.Contains(out.stdout, "hidden") {
		t.Errorf("a hidden request was carried out: %+v", out)
	}
}

// Compressed calls are rejected before anything is decompressed.
func TestCompressedCalls(t *testing.T) {
	s := startServer(t, nil, "--store", "memory:")
	conn, err := grpc.NewClient(s.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	bomb := &pb.SubmitRequest{Spec: &pb.Spec{Type: "t", Payload: make([]byte, 16<<20)}} // 16 KiB on the wire, four times the message limit
	_, err = pb.NewJobsServiceClient(conn).Submit(t.Context(), bomb, grpc.UseCompressor("gzip"))
	if status.Code(err) != codes.Internal || !strings.Contains(err.Error(), "compressed messages are not accepted") {
		t.Errorf("a compressed call: %v, want a refusal", err) // grpc-go lets a server choose only the text
	}
	if out := s.gq("job", "list", "--json"); out.status != 0 || strings.Contains(out.stdout, `"id"`) {
		t.Errorf("it was carried out: %+v", out)
	}
}
