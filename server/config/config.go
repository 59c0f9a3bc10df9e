// Package config reads the server's configuration from one strict YAML file, the
// environment and flags.
//
// A key a.b_c of the file is also the flag --a-b-c and the variable GQ_A_B_C. Flags
// override the environment, which overrides the file, which overrides the defaults.
// Unknown keys, invalid values and contradictions are all reported at once, those of the
// file with their lines.
package config

import (
	"log/slog"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/faces/scheduler"
	"github.com/gopherqueue/gq/internal/matchmaker/sink"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/match"
	"github.com/gopherqueue/gq/store"
)

// Config is the configuration of a server. [Default] has the defaults.
type Config struct {
	Store         string // memory:, file:DIR or postgres://…
	HTTP          string // address of the HTTP listener; port 0 is any
	GRPC          string // address of the gRPC listener; port 0 is any
	Insecure      bool   // listen on non-loopback addresses without authentication
	Drain         time.Duration
	DrainLag      time.Duration
	Dashboard     bool      // serve the dashboard at /
	DefaultPreset gq.Preset // policy of queues that are not configured
	Memory        int       // soft limit in bytes; 0 derives it from GOMEMLIMIT, the control group or the machine

	AcceptLoss bool // open a store with a damaged log, losing the damaged part

	Log       Log
	Limits    Limits
	Retention store.Retention
	Backup    Backup
	Scheduler Scheduler
	TaskQueue TaskQueue
	Matching  match.Settings // initial settings, until they are changed at run time
	Sinks     MatchingSinks
	Checks    MatchingChecks
	Webhooks  Webhooks
	Auth      Auth
}

// Log configures logging.
type Log struct {
	Level  slog.Level
	Format string // text or json
}

// Limits are the limits of requests and connections.
type Limits struct {
	gq.Limits
	BodyBytes   int           // largest HTTP body
	HeaderBytes int           // largest HTTP header
	BodyTimeout time.Duration // how long an HTTP client may take to send a body
	KeyWindow   time.Duration // how long idempotency keys are remembered, unless a policy says otherwise
	IdleTimeout time.Duration // how long an idle connection stays open
}

// Backup configures backups of a file: store that are taken while it serves.
type Backup struct {
	Dir  string // where they go; empty is nowhere
	Keep int    // generations; 0 is all
}

// Scheduler configures the scheduler API.
type Scheduler struct {
	Capacity      int64
	ClaimHold     time.Duration
	LeaseTTL      time.Duration
	OnLeaseExpiry string // timeout or requeue
	Idempotency   bool
}

// TaskQueue configures the task queue service.
type TaskQueue struct {
	Slots int // jobs of the service that this server runs concurrently
}

// MatchingSinks says where the records of matching go: file:PATH, queue:NAME or a URL. Empty
// is nowhere.
type MatchingSinks struct {
	Claims string // completions
	SLA    string // invalid proofs and what followed from them
	Rounds string // proofs of rounds
}

// MatchingChecks are URLs that decide for matching. Empty is the server itself.
type MatchingChecks struct {
	Proofs string // whether the proof of a completion is valid; without one every proof is
	SLA    string // what follows from an invalid proof
}

// Webhooks configures callbacks.
type Webhooks struct {
	Allow  []string // private hosts and networks that may be called
	Secret string   // signs deliveries
}

// Auth configures authentication.
type Auth struct {
	Required bool
	TLSCert  string
	TLSKey   string
	ClientCA string
}

// Default returns the default configuration.
func Default() Config {
	policy := gq.PresetScheduler.Policy()
	return Config{
		Store:         "file:gq-data",
		HTTP:          "127.0.0.1:8780",
		GRPC:          "127.0.0.1:8790",
		Drain:         30 * time.Second,
		Dashboard:     true,
		DefaultPreset: gq.PresetJobModel,
		Log:           Log{Level: slog.LevelInfo, Format: "text"},
		Limits: Limits{
			Limits:      machine.DefaultLimits(),
			BodyBytes:   16 << 20,
			HeaderBytes: 64 << 10,
			BodyTimeout: 30 * time.Second,
			IdleTimeout: 2 * time.Minute,
			KeyWindow:   machine.DefaultPolicy().IdempotencyWindow,
		},
		Retention: store.DefaultRetention(),
		Scheduler: Scheduler{
			Capacity:      scheduler.DefaultCapacity,
			ClaimHold:     policy.Hold,
			LeaseTTL:      policy.LeaseTTL,
			OnLeaseExpiry: "timeout",
			Idempotency:   true,
		},
		Matching: match.DefaultSettings(),
	}
}

// Setting is one configuration key.
type Setting struct {
	Key   string // a.b_c
	Usage string // for help
	Short bool   // alias of another key: not printed
	kind  kind
}

// Flag returns the name of the key's flag, without leading dashes.
func (s Setting) Flag() string { return strings.NewReplacer(".", "-", "_", "-").Replace(s.Key) }

// Variable returns the name of the key's environment variable.
func (s Setting) Variable() string {
	return "GQ_" + strings.ToUpper(strings.NewReplacer(".", "_").Replace(s.Key))
}

// IsBool reports whether the key is a boolean.
func (s Setting) IsBool() bool { _, ok := s.kind.(*boolKind); return ok }

// Former reports whether the key is one of an earlier version, which is refused.
func (s Setting) Former() bool { _, ok := s.kind.(formerKind); return ok }

// Text returns the current value as it would appear in a file, without secrets.
func (s Setting) Text() string { return s.kind.text() }

// Settings returns all keys of a configuration. Setting one changes c.
func (c *Config) Settings() []Setting {
	return slices.Concat([]Setting{
		{Key: "store", Usage: "where jobs are kept: memory:, file:DIR or postgres://…", kind: &storeKind{to: &c.Store}},
		{Key: "data", Usage: "short for store file:DIR", Short: true, kind: &storeKind{to: &c.Store, prefix: "file:"}},
		{Key: "http", Usage: "address of the HTTP API; port 0 picks a free one", kind: &textKind{to: &c.HTTP}},
		{Key: "grpc", Usage: "address of the gRPC API; port 0 picks a free one", kind: &textKind{to: &c.GRPC}},
		{Key: "insecure", Usage: "listen on non-loopback addresses without authentication", kind: &boolKind{&c.Insecure}},
		{Key: "drain", Usage: "how long calls in progress may take to finish when the server stops", kind: &durationKind{&c.Drain, 0, time.Hour}},
		{Key: "drain_lag", Usage: "how long a stopping server that is no longer ready keeps serving, so that load balancers notice", kind: &durationKind{&c.DrainLag, 0, 10 * time.Minute}},
		{Key: "dashboard", Usage: "serve the dashboard at / of the HTTP address", kind: &boolKind{&c.Dashboard}},
		{Key: "accept_loss", Usage: "open a file: store with a damaged log, drop what is unreadable and log what was dropped; for one start, each one with it logs a warning", kind: &boolKind{&c.AcceptLoss}},
		{Key: "memory_limit", Usage: "soft memory limit, such as 2GiB; 0 is GOMEMLIMIT, or else 80 % of the memory of the control group or machine", kind: &sizeKind{&c.Memory, 0, math.MaxInt / 2}},
		{Key: "capacity", Usage: "short for scheduler.capacity", Short: true, kind: &numberKind[int64]{&c.Scheduler.Capacity, 0, gq.MaxCapacity}},

		{Key: "default_preset", Usage: "policy of jobs that name none in queues that are not configured: jobmodel, semantics or resilient", kind: &presetKind{&c.DefaultPreset}},

		{Key: "log.level", Usage: "lowest level to log: debug, info, warn, error", kind: &levelKind{&c.Log.Level}},
		{Key: "log.format", Usage: "log format: text or json", kind: &textKind{to: &c.Log.Format, among: []string{"text", "json"}}},

		{Key: "limits.payload_bytes", Usage: "largest payload", kind: &sizeKind{&c.Limits.PayloadBytes, 1, gq.MaxPayloadBytes}},
		{Key: "limits.result_bytes", Usage: "largest result", kind: &sizeKind{&c.Limits.ResultBytes, 1, gq.MaxPayloadBytes}},
		{Key: "limits.checkpoint_bytes", Usage: "largest checkpoint", kind: &sizeKind{&c.Limits.CheckpointBytes, 1, gq.MaxPayloadBytes}},
		{Key: "limits.body_bytes", Usage: "largest HTTP body", kind: &sizeKind{&c.Limits.BodyBytes, 64 << 10, 256 << 20}},
		{Key: "limits.header_bytes", Usage: "largest HTTP header", kind: &sizeKind{&c.Limits.HeaderBytes, 4 << 10, 1 << 20}},
		{Key: "limits.body_timeout", Usage: "how long an HTTP client may take to send a body", kind: &durationKind{&c.Limits.BodyTimeout, time.Second, time.Hour}},
		{Key: "limits.idle_timeout", Usage: "how long an idle connection stays open", kind: &durationKind{&c.Limits.IdleTimeout, time.Second, 24 * time.Hour}},
		{Key: "limits.key_window", Usage: "how long an idempotency key is remembered unless the job's policy says otherwise", kind: &durationKind{&c.Limits.KeyWindow, time.Second, gq.MaxDuration}},

		{Key: "retention.completed", Usage: "how long completed jobs are kept", kind: retention(&c.Retention.Completed)},
		{Key: "retention.cancelled", Usage: "how long cancelled jobs are kept", kind: retention(&c.Retention.Cancelled)},
		{Key: "retention.failed", Usage: "how long failed jobs are kept", kind: retention(&c.Retention.Failed)},
		{Key: "retention.dead_letter", Usage: "how long dead-lettered jobs are kept", kind: retention(&c.Retention.DeadLetter)},

		{Key: "backup.dir", Usage: "directory for backups that gq backup now makes of a file: store while it serves", kind: &textKind{to: &c.Backup.Dir}},
		{Key: "backup.keep", Usage: "how many of these backups to keep; 0 is all", kind: &numberKind[int]{&c.Backup.Keep, 0, 1_000_000}},

		{Key: "scheduler.capacity", Usage: "cost units that running jobs of the scheduler API may occupy together", kind: &numberKind[int64]{&c.Scheduler.Capacity, 0, gq.MaxCapacity}},
		{Key: "scheduler.claim_hold", Usage: "how long a claim without a lease keeps its job", kind: &durationKind{&c.Scheduler.ClaimHold, time.Millisecond, gq.MaxDuration}},
		{Key: "scheduler.lease_ttl", Usage: "how long a holder without heartbeats keeps its job", kind: &durationKind{&c.Scheduler.LeaseTTL, time.Millisecond, gq.MaxDuration}},
		{Key: "scheduler.on_lease_expiry", Usage: "what happens to a job whose lease expired: timeout or requeue", kind: &textKind{to: &c.Scheduler.OnLeaseExpiry, among: []string{"timeout", "requeue"}}},
		{Key: "scheduler.idempotency", Usage: "refuse a repeated client request id", kind: &boolKind{&c.Scheduler.Idempotency}},

		{Key: "taskqueue.slots", Usage: "jobs of the task queue that this server runs at once", kind: &numberKind[int]{&c.TaskQueue.Slots, 0, 10_000}},
	}, matchingSettings(&c.Matching), []Setting{
		{Key: "matching.sinks.claims", Usage: "where matching reports completions: file:PATH, queue:NAME or a URL", kind: &sinkKind{&c.Sinks.Claims, parseSink}},
		{Key: "matching.sinks.sla", Usage: "where matching reports invalid proofs and what followed from them: file:PATH, queue:NAME or a URL", kind: &sinkKind{&c.Sinks.SLA, parseSink}},
		{Key: "matching.sinks.rounds", Usage: "where matching reports proofs of rounds: file:PATH, queue:NAME or a URL", kind: &sinkKind{&c.Sinks.Rounds, parseSink}},
		{Key: "matching.checks.proofs", Usage: "URL that says whether the proof of a completion is valid", kind: &sinkKind{&c.Checks.Proofs, sink.CheckURL}},
		{Key: "matching.checks.sla", Usage: "URL that says what follows from an invalid proof", kind: &sinkKind{&c.Checks.SLA, sink.CheckURL}},

		{Key: "webhooks.allow", Usage: "private hosts and networks that webhooks may call, such as 10.0.0.0/8", kind: &listKind{to: &c.Webhooks.Allow}},
		{Key: "webhooks.secret", Usage: "secret of the signatures: whsec_ and 24 to 64 bytes in base64, or 24 to 64 characters", kind: &textKind{to: &c.Webhooks.Secret, secret: true}},

		{Key: "auth.required", Usage: "every call needs a token", kind: &boolKind{&c.Auth.Required}},
		{Key: "auth.tls_cert", Usage: "file with the server's certificate", kind: &textKind{to: &c.Auth.TLSCert}},
		{Key: "auth.tls_key", Usage: "file with the server's private key", kind: &textKind{to: &c.Auth.TLSKey}},
		{Key: "auth.client_ca", Usage: "file with the certificate authorities of clients", kind: &textKind{to: &c.Auth.ClientCA}},
	})
}

func retention(d *time.Duration) kind { return &durationKind{d, time.Second, gq.MaxDuration} }

// check reports contradictions, by key.
func (c *Config) check(fault func(key, format string, args ...any)) {
	for _, listener := range []struct{ key, address string }{{"http", c.HTTP}, {"grpc", c.GRPC}} {
		if _, port, err := net.SplitHostPort(listener.address); err != nil {
			fault(listener.key, "%q is not an address such as 127.0.0.1:8780", listener.address)
		} else if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 {
			fault(listener.key, "%q is not a port between 0 and 65535", port)
		}
	}
	if _, port, _ := net.SplitHostPort(c.HTTP); c.HTTP == c.GRPC && port != "0" {
		fault("grpc", "%s is the address of HTTP already", c.GRPC)
	}
	// Base64 enlarges a payload by a third, and a body has more than the payload.
	if least := c.Limits.PayloadBytes/3*4 + 64<<10; c.Limits.BodyBytes < least {
		key := "limits.body_bytes"
		if c.Limits.BodyBytes == Default().Limits.BodyBytes {
			key = "limits.payload_bytes" // blame the key that was set
		}
		fault(key, "limits.body_bytes, %d, does not hold a payload of limits.payload_bytes, %d; at least %d does", c.Limits.BodyBytes, c.Limits.PayloadBytes, least)
	}
	window := c.Limits.KeyWindow
	if shortest := min(c.Retention.Completed, c.Retention.Cancelled, c.Retention.Failed, c.Retention.DeadLetter); shortest < window {
		for _, r := range []struct {
			key   string
			value time.Duration
		}{
			{"retention.completed", c.Retention.Completed},
			{"retention.cancelled", c.Retention.Cancelled},
			{"retention.failed", c.Retention.Failed},
			{"retention.dead_letter", c.Retention.DeadLetter},
		} {
			if r.value < window {
				fault(r.key, "%v is shorter than idempotency keys are remembered, %v; raise it, or lower limits.key_window", r.value, window)
			}
		}
	}
	if c.Backup.Dir != "" && !strings.HasPrefix(c.Store, "file:") {
		fault("backup.dir", "only a file: store is backed up while it serves; leave it out, or set store to file:DIR")
	}
	c.checkMatching(fault)
	c.checkAuth(fault)
}

func (c *Config) checkAuth(fault func(key, format string, args ...any)) {
	a := c.Auth
	if a.TLSCert != "" && a.TLSKey == "" {
		fault("auth.tls_cert", "goes together with auth.tls_key")
	}
	if a.TLSKey != "" && a.TLSCert == "" {
		fault("auth.tls_key", "goes together with auth.tls_cert")
	}
	if a.ClientCA != "" && a.TLSCert == "" {
		fault("auth.client_ca", "needs auth.tls_cert")
	}
}

// Lookup finds a setting by its key.
func Lookup(settings []Setting, key string) (Setting, bool) {
	i := slices.IndexFunc(settings, func(s Setting) bool { return s.Key == key })
	if i < 0 {
		return Setting{}, false
	}
	return settings[i], true
}
