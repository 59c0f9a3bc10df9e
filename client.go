package gq

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// Client is an open queue, embedded in this process or on a server. It has the methods of
// [Driver].
type Client struct{ Driver }

// Open opens the queue that a URL names:
//
//	memory:                     in this process and gone with it, for tests
//	file:DIR                    in this process, durable in a directory
//	postgres://…                shared by all processes that use the database
//	gq://HOST:8790[,HOST:8790]  a server; of several the first that answers
//	gqs://…                     the same with TLS
//
// The program imports the driver of the schemes it uses, as with database/sql:
//
//	import _ "github.com/gopherqueue/gq/driver/file" // file: and memory:
//
// An embedded queue does its background work, such as retries and schedules, until Close.
func Open(ctx context.Context, url string, options ...OpenOption) (*Client, error) {
	scheme, _, _ := strings.Cut(url, ":")
	open, err := driverOf(scheme)
	if err != nil {
		return nil, err
	}
	var o OpenOptions
	for _, set := range options {
		set(&o)
	}
	driver, err := open(ctx, url, o)
	if err != nil {
		return nil, err
	}
	return &Client{driver}, nil
}

// Close stops an embedded queue or disconnects from a server. What was acknowledged stays.
func (c *Client) Close() error {
	if d, ok := c.Driver.(io.Closer); ok {
		return d.Close()
	}
	return nil
}

// Submit stores a job; programs usually do so through a [Kind]. If the idempotency key
// belongs to a job that was submitted with other content, the result is that job and the
// error is [ErrKeyReused].
func (c *Client) Submit(ctx context.Context, s Spec) (SubmitResult, error) {
	r, err := c.Driver.Submit(ctx, s)
	if err == nil {
		err = r.KeyReused()
	}
	return r, err
}

// In is the queue within a transaction of the program's own: a pgx.Tx or *sql.Tx of the
// database that the queue is in. Other queues refuse what is submitted there.
func (c *Client) In(tx any) Submitter {
	if d, ok := c.Driver.(interface {
		Within(tx any) (Submitter, error)
	}); ok {
		t, err := d.Within(tx)
		if err == nil {
			return t
		}
		return refusal{err}
	}
	return refusal{ErrInvalid.Errorf("this queue takes no part in transactions; open it with the postgres:// URL of the database")}
}

// refusal is a transaction that there cannot be.
type refusal struct{ err error }

func (r refusal) Submit(context.Context, Spec) (SubmitResult, error) { return SubmitResult{}, r.err }

func (r refusal) SubmitBatch(context.Context, []Spec) ([]SubmitResult, error) { return nil, r.err }

func (r refusal) SubmitGraph(context.Context, []GraphJob) ([]SubmitResult, error) { return nil, r.err }

func (r refusal) Complete(context.Context, LeaseRef, []byte) (State, error) { return State{}, r.err }

// OpenOptions are the settings with which [Open] calls a driver.
type OpenOptions struct {
	Log      *slog.Logger                                                      // nil logs nothing
	Token    string                                                            // of a server
	TLS      *tls.Config                                                       // of a server
	Limits   Limits                                                            // of an embedded queue; zero is DefaultLimits
	Backoffs map[string]func(n int, initial, most time.Duration) time.Duration // strategies of the program's own, by name, of an embedded queue
}

// OpenOption changes one setting of [Open]; for those without a function of their own it is
// written as func(o *gq.OpenOptions) { o.Limits = … }.
type OpenOption func(*OpenOptions)

// Token authenticates with a server.
func Token(token string) OpenOption { return func(o *OpenOptions) { o.Token = token } }

// Log logs what goes wrong in the background. Without it nothing is logged.
func Log(log *slog.Logger) OpenOption { return func(o *OpenOptions) { o.Log = log } }

// openFunc opens the queue that a URL names.
type openFunc = func(ctx context.Context, url string, o OpenOptions) (Driver, error)

var drivers struct {
	mu       sync.Mutex
	byScheme map[string]openFunc // guarded by mu
}

// RegisterDriver has [Open] call a function for the URLs of a scheme. The packages below
// driver do so when they are imported. A driver that is also an [io.Closer] is closed with its
// client. It panics if the scheme is taken.
func RegisterDriver(scheme string, open func(ctx context.Context, url string, o OpenOptions) (Driver, error)) {
	drivers.mu.Lock()
	defer drivers.mu.Unlock()
	if drivers.byScheme[scheme] != nil {
		panic("gq: two drivers are registered for " + scheme + ":")
	}
	if drivers.byScheme == nil {
		drivers.byScheme = make(map[string]openFunc)
	}
	drivers.byScheme[scheme] = open
}

// driverPackages are the packages that register our own schemes.
var driverPackages = map[string]string{
	"memory": "file", "file": "file", "postgres": "postgres", "postgresql": "postgres", "gq": "remote", "gqs": "remote",
}

func driverOf(scheme string) (openFunc, error) {
	drivers.mu.Lock()
	defer drivers.mu.Unlock()
	if open := drivers.byScheme[scheme]; open != nil {
		return open, nil
	}
	problem := fmt.Sprintf("%.40q is none of the schemes %s", scheme+":", strings.Join(slices.Sorted(maps.Keys(driverPackages)), ", "))
	if name, ok := driverPackages[scheme]; ok {
		problem = fmt.Sprintf("the driver of %s: is not linked; add import _ %q", scheme, "github.com/gopherqueue/gq/driver/"+name)
	}
	return nil, &InvalidError{Faults: []Fault{{"url", problem}}}
}
