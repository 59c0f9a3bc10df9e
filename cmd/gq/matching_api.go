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
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gopherqueue/gq"
	pb "github.com/gopherqueue/gq/api/gopherqueue/v1"
	"github.com/gopherqueue/gq/internal/cli"
	"github.com/gopherqueue/gq/internal/faces/matching"
	"github.com/gopherqueue/gq/internal/pbconv"
	"github.com/gopherqueue/gq/internal/wire"
)

// matchingAPI calls the HTTP APIs of a server that have no gRPC counterpart: that of matching
// and that of the scheduler.
type matchingAPI struct {
	process
	addr, http string
	json       bool
}

func (a *matchingAPI) flag(c *cobra.Command) {
	explainTLS(c)
	c.Flags().StringVar(&a.addr, "addr", "", "gRPC address of the server, or several separated by commas to try in order (default GQ_ADDR, or "+defaultAddr+")")
	c.Flags().StringVar(&a.http, "http", "", "HTTP address of the server, or several (default GQ_HTTP, or port 8780 where --addr is)")
}

// flags adds the flags of commands that print what the server answered.
func (a *matchingAPI) flags(c *cobra.Command) {
	a.flag(c)
	c.Flags().BoolVar(&a.json, "json", false, "print JSON for programs")
}

// servers returns the addresses of the server, to be tried in this order. The API is HTTP
// only; other commands take the gRPC address. With the default ports, the HTTP address
// follows from it.
func (a *matchingAPI) servers() (list []string, err error) {
	told := a.http
	if told == "" && a.addr == "" {
		told = a.getenv("GQ_HTTP")
	}
	if told != "" {
		for one := range strings.SplitSeq(told, ",") {
			list = append(list, strings.TrimSpace(one))
		}
		return list, nil
	}
	_, usual, _ := strings.Cut(defaultAddr, ":")
	_, web, _ := strings.Cut(defaultHTTP, ":")
	for addr := range strings.SplitSeq(cmp.Or(a.addr, a.getenv("GQ_ADDR"), defaultAddr), ",") {
		host, port, err := net.SplitHostPort(strings.TrimSpace(addr))
		if err != nil || port != usual {
			return nil, cli.Invalid("http", fmt.Sprintf("is needed, or GQ_HTTP: from the gRPC address %.80q, whose port is not %s, that of HTTP does not follow", addr, usual))
		}
		list = append(list, net.JoinHostPort(host, web))
	}
	return list, nil
}

// defaultHTTP is the default HTTP address of gq serve.
const defaultHTTP = "127.0.0.1:8780"

// maxRecord is the largest response that is read.
const maxRecord = 256 << 20

// call calls the matching API. It returns the server's response and the server's time.
func (a *matchingAPI) call(ctx context.Context, method, path string, body any) ([]byte, time.Time, error) {
	return a.at(ctx, method, matching.Base+path, body)
}

// at calls a server, the next one if it cannot connect to the first.
func (a *matchingAPI) at(ctx context.Context, method, path string, body any) (answer []byte, now time.Time, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	list, err := a.servers()
	if err != nil {
		return nil, time.Time{}, err
	}
	for _, server := range list {
		answer, now, err = a.request(ctx, server, method, path, body)
		if failed, ok := errors.AsType[*net.OpError](err); !ok || failed.Op != "dial" {
			break
		}
	}
	return answer, now, err
}

func (a *matchingAPI) request(ctx context.Context, base, method, path string, body any) ([]byte, time.Time, error) {
	tls, err := cli.ClientTLS(a.getenv)
	if err != nil {
		return nil, time.Time{}, err
	}
	transport := &http.Transport{TLSClientConfig: tls}
	defer transport.CloseIdleConnections()
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
	request, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(base, "/")+path, sent)
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
	if answer.StatusCode < 200 || answer.StatusCode > 299 {
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
		http.StatusBadRequest: gq.KindInvalid, http.StatusNotFound: gq.KindNotFound, http.StatusUnauthorized: gq.KindUnauthenticated,
		http.StatusForbidden: gq.KindDenied, http.StatusConflict: gq.KindConflict,
		http.StatusGone: gq.KindNotFound, http.StatusTooManyRequests: gq.KindExhausted, http.StatusServiceUnavailable: gq.KindUnavailable,
	}[status]
	if !known {
		return errors.New(p.Detail)
	}
	return pbconv.ErrorFromProblem(&pb.Problem{Code: p.Code, Kind: kind.String(), Message: p.Detail, RequestId: p.RequestID})
}

// show prints a response as JSON or, for people, what f writes of it.
func show[T any](a *matchingAPI, response []byte, f func(s screen, v *T)) error {
	if a.json {
		_, err := fmt.Fprintln(a.stdout, strings.TrimSpace(string(response)))
		return err
	}
	var v T
	if err := json.Unmarshal(response, &v); err != nil {
		return fmt.Errorf("the server's answer: %w", err)
	}
	f(newScreen(a.stdout, a.getenv), &v)
	return nil
}

// pager has the flags of lists.
type pager struct {
	limit  int
	cursor string
	most   int
}

func (p *pager) flags(c *cobra.Command, what string, limit, most int) {
	p.most = most
	c.Flags().IntVar(&p.limit, "limit", limit, fmt.Sprintf("%s on the page, up to %d", what, most))
	c.Flags().StringVar(&p.cursor, "cursor", "", "next_cursor of the previous page")
}

// query returns the parameters of a list.
func (p *pager) query() (url.Values, error) {
	if p.limit < 1 || p.limit > p.most {
		return nil, cli.Invalid("limit", fmt.Sprintf("%d is not between 1 and %d", p.limit, p.most))
	}
	q := url.Values{"limit": {strconv.Itoa(p.limit)}}
	if p.cursor != "" {
		q.Set("cursor", p.cursor)
	}
	return q, nil
}

// more says how to read the next page.
func (s screen) more(next string) {
	if next != "" {
		s.line("more with --cursor %s", next)
	}
}
