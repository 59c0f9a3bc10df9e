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
type Client struct {
	Driver
	middleware []Middleware
}

// Open opens the queue that a URL names:
//
//	memory:                     in the memory of this process, for tests
//	file:DIR                    in this process, durable in a directory
//	postgres://…                in a database, shared by all processes that use it
//	gq://HOST:8790[,HOST:8790]  on a server; the first host that answers is used
//	gqs://…                     the same with TLS
//
// The program imports the drivers for the schemes it uses, as with database/sql:
//
//	import _ "github.com/gopherqueue/gq/driver/file" // file: and memory:
//
// An embedded queue runs its background work, such as retries and schedules, until Close.
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
	return &Client{driver, o.Middleware}, nil
}

// Close stops an embedded queue or disconnects from a server. Acknowledged writes are durable.
func (c *Client) Close() error {
	if d, ok := c.Driver.(io.Closer); ok {
		return d.Close()
	}
	return nil
}

// Submit stores a job; programs usually call [Kind.Submit] instead. If the idempotency key
// belongs to a job with different content, Submit returns that job and [ErrKeyReused].
func (c *Client) Submit(ctx context.Context, s Spec) (SubmitResult, error) {
	var to Submitter = c.Driver
	if !c.plain() {
		to = submitting{to: to, client: c}
	}
	r, err := to.Submit(ctx, s)
	if err == nil {
		err = r.KeyReused()
	}
	return r, err
}

// In returns the queue inside a transaction of the program: a pgx.Tx or *sql.Tx of the
// database that holds the queue. Other queues fail every call with [ErrInvalid].
//
// A *sql.Tx only submits: the queue takes the job in after the commit, and until then the
// result has nothing but its id. A pgx.Tx can also complete jobs.
func (c *Client) In(tx any) Submitter {
	if d, ok := c.Driver.(interface {
		Within(tx any) (Submitter, error)
	}); ok {
		t, err := d.Within(tx)
		switch {
		case err == nil && c.plain():
			return t
		case err == nil:
			return submitting{to: t, client: c}
		}
		return failedTx{err}
	}
	return failedTx{ErrInvalid.Errorf("this queue does not support transactions; open it with the postgres:// URL of the database")}
}

// failedTx fails every call with the error that [Client.In] cannot return.
type failedTx struct{ err error }

func (f failedTx) Submit(context.Context, Spec) (SubmitResult, error) { return SubmitResult{}, f.err }

func (f failedTx) SubmitBatch(context.Context, []Spec) ([]SubmitResult, error) { return nil, f.err }

func (f failedTx) SubmitGraph(context.Context, []GraphJob) ([]SubmitResult, error) { return nil, f.err }

func (f failedTx) SubmitWorkflow(context.Context, *Flow) (WorkflowID, error) {
	return WorkflowID{}, f.err
}

func (f failedTx) Complete(context.Context, LeaseRef, []byte) (State, error) { return State{}, f.err }

// OpenOptions are the settings that [Open] passes to a driver.
type OpenOptions struct {
	Log           *slog.Logger                                                      // nil logs nothing
	Token         string                                                            // of a server
	TLS           *tls.Config                                                       // of a server
	DefaultPreset Preset                                                            // policy of the queues of an embedded queue that are not configured; zero is PresetJobModel
	Limits        Limits                                                            // of an embedded queue; zero fields have defaults
	Backoffs      map[string]func(n int, initial, most time.Duration) time.Duration // custom backoffs of an embedded queue, by name
	Middleware    []Middleware                                                      // of the client; see Use
}

// OpenOption changes one setting of [Open]. Settings without a function here are written as
// func(o *gq.OpenOptions) { o.Limits = … }.
type OpenOption func(*OpenOptions)

// Token authenticates with a server.
func Token(token string) OpenOption { return func(o *OpenOptions) { o.Token = token } }

// Log sets the logger for errors of the background work. Without it they are not logged.
func Log(log *slog.Logger) OpenOption { return func(o *OpenOptions) { o.Log = log } }

// openFunc opens the queue that a URL names.
type openFunc = func(ctx context.Context, url string, o OpenOptions) (Driver, error)

var drivers struct {
	mu       sync.Mutex
	byScheme map[string]openFunc // guarded by mu
}

// RegisterDriver makes [Open] call open for URLs with this scheme. The packages under driver
// register themselves when they are imported. [Client.Close] closes a driver that implements
// [io.Closer]. RegisterDriver panics if the scheme already has a driver.
func RegisterDriver(scheme string, open func(ctx context.Context, url string, o OpenOptions) (Driver, error)) {
	drivers.mu.Lock()
	defer drivers.mu.Unlock()
	if drivers.byScheme[scheme] != nil {
		panic("gq: a driver for " + scheme + ": is already registered")
	}
	if drivers.byScheme == nil {
		drivers.byScheme = make(map[string]openFunc)
	}
	drivers.byScheme[scheme] = open
}

// driverPackages maps each scheme of this module to the package that registers it.
var driverPackages = map[string]string{
	"memory": "file", "file": "file", "postgres": "postgres", "postgresql": "postgres", "gq": "remote", "gqs": "remote",
}

func driverOf(scheme string) (openFunc, error) {
	drivers.mu.Lock()
	defer drivers.mu.Unlock()
	if open := drivers.byScheme[scheme]; open != nil {
		return open, nil
	}
	problem := fmt.Sprintf("unknown scheme %.40q; use one of %s", scheme+":", strings.Join(slices.Sorted(maps.Keys(driverPackages)), ", "))
	if name, ok := driverPackages[scheme]; ok {
		problem = fmt.Sprintf("the driver for %s: is not linked; add import _ %q", scheme, "github.com/gopherqueue/gq/driver/"+name)
	}
	return nil, &InvalidError{Faults: []Fault{{"url", problem}}}
}
