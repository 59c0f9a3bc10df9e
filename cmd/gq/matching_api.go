package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gopherqueue/gq"
	pb "github.com/gopherqueue/gq/api/gopherqueue/v1"
	"github.com/gopherqueue/gq/internal/cli"
	"github.com/gopherqueue/gq/internal/faces/matching"
	"github.com/gopherqueue/gq/internal/wire"
)

// matchingAPI calls a server below /api/matching.
type matchingAPI struct {
	process
	addr, http string
}

func (a *matchingAPI) flag(c *cobra.Command) {
	c.Flags().StringVar(&a.addr, "addr", "", "gRPC address of the server (default GQ_ADDR, or "+defaultAddr+")")
	c.Flags().StringVar(&a.http, "http", "", "HTTP address of the server (default GQ_HTTP, or port 8780 where --addr is)")
}

// server returns the URL of the API, which is HTTP only. Other commands take the gRPC
// address; with the default ports, the HTTP address follows from it.
func (a *matchingAPI) server() (string, error) {
	if a.http != "" {
		return a.http, nil
	}
	addr := a.addr
	if addr == "" {
		if told := a.getenv("GQ_HTTP"); told != "" {
			return told, nil
		}
		addr = cmp.Or(a.getenv("GQ_ADDR"), defaultAddr)
	}
	_, usual, _ := strings.Cut(defaultAddr, ":")
	host, port, err := net.SplitHostPort(addr)
	if err != nil || port != usual {
		return "", cli.Invalid("http", fmt.Sprintf("is needed, or GQ_HTTP: from the gRPC address %.80q, whose port is not %s, that of HTTP does not follow", addr, usual))
	}
	_, usual, _ = strings.Cut(defaultHTTP, ":")
	return net.JoinHostPort(host, usual), nil
}

// defaultHTTP is the default HTTP address of gq serve.
const defaultHTTP = "127.0.0.1:8780"

// maxRecord is the largest response that is read.
const maxRecord = 256 << 20

// call returns the server's response and the server's time.
func (a *matchingAPI) call(ctx context.Context, method, path string, body any) ([]byte, time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	tls, err := cli.ClientTLS(a.getenv)
	if err != nil {
		return nil, time.Time{}, err
	}
	transport := &http.Transport{TLSClientConfig: tls}
	defer transport.CloseIdleConnections()
	base, err := a.server()
	if err != nil {
		return nil, time.Time{}, err
	}
	if !strings.Contains(base, "://") {
		scheme := "http://"
		if tls != nil {
			scheme = "https://"
		}
		base = scheme + base
	}
	var sent io.Reader = http.NoBody
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return nil, time.Time{}, err
		}
		sent = bytes.NewReader(text)
	}
	request, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(base, "/")+matching.Base+path, sent)
	if err != nil {
		return nil, time.Time{}, cli.Invalid("http", fmt.Sprintf("%.80q is not an address", base))
	}
	if token := a.getenv("GQ_TOKEN"); token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	answer, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("%w: %w", wire.ErrUnreachable, err)
	}
	defer answer.Body.Close() //nolint:errcheck // it was read
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxRecord))
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("%w: %w", wire.ErrUnreachable, err)
	}
	if answer.StatusCode != http.StatusOK {
		return nil, time.Time{}, refusal(answer.StatusCode, text)
	}
	now, err := http.ParseTime(answer.Header.Get("Date"))
	if err != nil {
		now = time.Now() // a proxy has removed the Date header
	}
	return text, now, nil
}

// refusal converts an error response of the server.
func refusal(status int, text []byte) error {
	var p wire.Problem
	if json.Unmarshal(text, &p) != nil || p.Code == "" {
		return fmt.Errorf("the server answered with HTTP status %d", status)
	}
	kind, known := map[int]gq.ErrorKind{
		http.StatusNotFound: gq.KindNotFound, http.StatusUnauthorized: gq.KindUnauthenticated,
		http.StatusForbidden: gq.KindDenied, http.StatusConflict: gq.KindConflict,
	}[status]
	if !known {
		return errors.New(p.Detail)
	}
	return wire.ErrorFromProblem(&pb.Problem{Code: p.Code, Kind: kind.String(), Message: p.Detail, RequestId: p.RequestID})
}
