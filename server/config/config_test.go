package config

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/errs"
)

func load(file string, env, flags map[string]string) (Loaded, error) {
	return Load(Sources{
		File: "gq.yaml", Text: []byte(file), Flags: flags,
		Env: func(name string) string { return env[name] },
	})
}

func TestDefaultsAreThoseOfTheDesign(t *testing.T) {
	c, err := load("", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Default(), c.Config); diff != "" {
		t.Errorf("nothing was said, and yet (-want +got):\n%s", diff)
	}
	if c.Store != "file:gq-data" || c.HTTP != "127.0.0.1:8780" || c.GRPC != "127.0.0.1:8790" {
		t.Errorf("defaults are %s, %s, %s", c.Store, c.HTTP, c.GRPC)
	}
}

func TestEverySourceReachesEveryKey(t *testing.T) {
	other := map[string]string{
		"store": "memory:", "data": "dir", "http": "127.0.0.1:1", "grpc": "127.0.0.1:2", "insecure": "true", "drain": "5s", "drain_lag": "2s", "dashboard": "false", "accept_loss": "true", "backup.dir": "backups", "backup.keep": "7", "memory_limit": "3GiB", "capacity": "9", "default_preset": "resilient",
		"log.level": "debug", "log.format": "json",
		"limits.payload_bytes": "2MiB", "limits.result_bytes": "3MiB", "limits.checkpoint_bytes": "4MiB", "limits.body_bytes": "32MiB",
		"limits.header_bytes": "8KiB", "limits.body_timeout": "9s", "limits.idle_timeout": "10s", "limits.key_window": "23h0m0s",
		"retention.completed": "25h0m0s", "retention.cancelled": "26h0m0s", "retention.failed": "27h0m0s", "retention.dead_letter": "28h0m0s",
		"scheduler.capacity": "9", "scheduler.claim_hold": "2s", "scheduler.lease_ttl": "3s", "scheduler.on_lease_expiry": "requeue", "scheduler.idempotency": "false",
		"taskqueue.slots":       "6",
		"matching.sinks.claims": "file:claims.jsonl", "matching.sinks.sla": "queue:sla", "matching.sinks.rounds": "https://example.org/rounds",
		"matching.checks.proofs": "https://example.org/proofs", "matching.checks.sla": "http://127.0.0.1:9000/sla",
		"webhooks.allow": "10.0.0.0/8, localhost", "webhooks.secret": "0123456789abcdef01234567",
		"auth.required": "true", "auth.tls_cert": "a", "auth.tls_key": "b", "auth.client_ca": "c",
	}
	maps.Copy(other, otherMatching)
	c := Default()
	for _, s := range c.Settings() {
		if s.Former() {
			continue
		}
		t.Run(s.Key, func(t *testing.T) {
			text, ok := other[s.Key]
			if !ok {
				t.Fatal("this test has no value for it")
			}
			file, indent := "", ""
			for name := range strings.SplitSeq(s.Key, ".") {
				file += "\n" + indent + name + ":"
				indent += "  "
			}
			file += " \"" + text + "\"\n"
			for source, load := range map[string]func() (Loaded, error){
				"file": func() (Loaded, error) { return load(file, nil, nil) },
				"env":  func() (Loaded, error) { return load("", map[string]string{s.Variable(): text}, nil) },
				"flag": func() (Loaded, error) { return load("", nil, map[string]string{s.Key: text}) },
			} {
				got, err := load()
				if err != nil && !strings.HasPrefix(s.Key, "auth.") {
					t.Errorf("from %s: %v", source, err)
				}
				want := text
				switch s.Key {
				case "data":
					want = "file:dir"
				case "webhooks.secret":
					want = "(secret)"
				}
				for _, after := range got.Config.Settings() {
					if after.Key == s.Key && after.Text() != want {
						t.Errorf("from %s: it is %q, want %q", source, after.Text(), want)
					}
				}
			}
		})
	}
}

func TestNamesOfFlagsAndVariables(t *testing.T) {
	c := Default()
	s, ok := Lookup(c.Settings(), "scheduler.on_lease_expiry")
	if !ok || s.Flag() != "scheduler-on-lease-expiry" || s.Variable() != "GQ_SCHEDULER_ON_LEASE_EXPIRY" {
		t.Errorf("%q, %q", s.Flag(), s.Variable())
	}
}

func TestPrecedence(t *testing.T) {
	file := "drain: 1s\nhttp: 127.0.0.1:1\nlog:\n  level: warn\n"
	c, err := load(file, map[string]string{"GQ_DRAIN": "2s", "GQ_HTTP": "127.0.0.1:2"}, map[string]string{"drain": "3s"})
	if err != nil {
		t.Fatal(err)
	}
	if c.Drain != 3*time.Second || c.HTTP != "127.0.0.1:2" || c.Log.Level.String() != "WARN" {
		t.Errorf("drain %v, http %s, level %v", c.Drain, c.HTTP, c.Log.Level)
	}
	values := c.Values()
	for key, from := range map[string]string{"drain": "--drain", "http": "GQ_HTTP", "log.level": "gq.yaml:4", "grpc": "default"} {
		if values[key].From != from {
			t.Errorf("%s comes from %q, want %q", key, values[key].From, from)
		}
	}
}

func TestAShortKeyCountsByItsSource(t *testing.T) {
	c, err := load("store: \"memory:\"\n", nil, map[string]string{"data": "elsewhere"})
	if err != nil || c.Store != "file:elsewhere" {
		t.Errorf("%q, %v", c.Store, err)
	}
	_, err = load("store: \"memory:\"\ndata: elsewhere\n", nil, nil)
	if err == nil || !strings.Contains(err.Error(), "gq.yaml:2: data: contradicts store (gq.yaml:1)") {
		t.Errorf("a contradiction is %v", err)
	}
}

func TestFaultsAreReportedAtOnceWithTheirLines(t *testing.T) {
	file := `http: 127.0.0.1
drain: 5 minutes
log:
  level: loud
  colour: red
retention:
  completed: 7d
limits:
  payload_bytes: 20MiB
shceduler:
  capacity: 5
scheduler:
  capacity: -1
  capacity: 2
webhooks: here
auth:
  tls_cert: [a]
`
	_, err := load(file, map[string]string{"GQ_GRPC": "", "GQ_SCHEDULER_LEASE_TTL": "soon"}, map[string]string{"log.format": "xml"})
	var got []string
	for _, f := range errs.FaultsOf(err) {
		got = append(got, f.String())
	}
	for _, want := range []string{
		"gq.yaml:2: drain: \"5 minutes\" is not a duration",
		"gq.yaml:4: log.level: \"loud\" is not one of",
		"gq.yaml:5: log.colour: is not a known key",
		"gq.yaml:7: retention.completed: \"7d\" is not a duration",
		"gq.yaml:9: limits.payload_bytes: 20MiB is not between 1 and 16MiB",
		"gq.yaml:10: shceduler: is not a known key",
		"gq.yaml:13: scheduler.capacity: -1 is not between",
		"gq.yaml:15: webhooks: is not a list of keys",
		"gq.yaml:17: auth.tls_cert: is one value, not a list",
		"GQ_SCHEDULER_LEASE_TTL: scheduler.lease_ttl: \"soon\" is not a duration",
		"--log-format: log.format: \"xml\" is not one of text, json",
	} {
		found := false
		for _, g := range got {
			found = found || strings.HasPrefix(g, want)
		}
		if !found {
			t.Errorf("%q is not among\n%s", want, strings.Join(got, "\n"))
		}
	}
}

// Jobs may be kept for less than a day if keys are remembered for less.
func TestShortRetention(t *testing.T) {
	loaded, err := load("limits:\n  key_window: 1h\nretention:\n  completed: 1h\n  cancelled: 1h\n  failed: 1h\n  dead_letter: 1h\n", nil, nil)
	if err != nil || loaded.Config.Retention.Completed != time.Hour || loaded.Config.Limits.KeyWindow != time.Hour {
		t.Errorf("a retention of an hour with a key window of an hour: %v", err)
	}
}

func TestContradictions(t *testing.T) {
	for _, test := range []struct{ file, want string }{
		{"http: 127.0.0.1\n", "gq.yaml:1: http: \"127.0.0.1\" is not an address"},
		{"http: 127.0.0.1:5\ngrpc: 127.0.0.1:5\n", "gq.yaml:2: grpc: 127.0.0.1:5 is the address of HTTP already"},
		{"limits:\n  payload_bytes: 16MiB\n", "gq.yaml:2: limits.payload_bytes: limits.body_bytes, 16777216, does not hold"},
		{"limits:\n  body_bytes: 64KiB\n", "gq.yaml:2: limits.body_bytes: limits.body_bytes, 65536, does not hold"},
		{"retention:\n  completed: 1h\n", "gq.yaml:2: retention.completed: 1h0m0s is shorter than idempotency keys are remembered, 24h0m0s; raise it, or lower limits.key_window"},
		{"limits:\n  key_window: 2h\nretention:\n  failed: 1h\n", "gq.yaml:4: retention.failed: 1h0m0s is shorter than idempotency keys are remembered, 2h0m0s"},
		{"store: \"memory:\"\nbackup:\n  dir: d\n", "gq.yaml:3: backup.dir: only a file: store is backed up while it serves"},
		{"auth:\n  client_ca: ca\n", "gq.yaml:2: auth.client_ca: needs auth.tls_cert"},
		{"auth:\n  tls_key: k\n", "gq.yaml:2: auth.tls_key: goes together with auth.tls_cert"},
		{"auth:\n  tls_cert: c\n", "gq.yaml:2: auth.tls_cert: goes together with auth.tls_key"},
		{"a: [\n", "gq.yaml:1"},
		{"- a\n", "is not a list of keys"},
		{"http: 127.0.0.1:1\n---\nhttp: 127.0.0.1:2\n", "a second document"},
		{"http:\n", "http: has no value"},
		{"http:\n  a: 1\n", "is one value, and keys stand below it"},
		{"drain: 2h\n", "2h0m0s is not between 0s and 1h0m0s"},
	} {
		_, err := load(test.file, nil, nil)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%q is %v, want %q in it", test.file, err, test.want)
		}
		if err != nil && errs.KindOf(err) != gq.KindInvalid {
			t.Errorf("%q is of kind %v", test.file, errs.KindOf(err))
		}
	}
}

func TestPrintedConfigurationIsTheSameAgain(t *testing.T) {
	c, err := load("webhooks:\n  allow: [10.0.0.0/8, localhost]\nstore: postgres://me:secret@db/gq\n", nil, map[string]string{"drain": "7s"})
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := c.Print(&b); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(b.String(), "secret@") {
		t.Errorf("the password is told:\n%s", b.String())
	}
	again, err := load(b.String(), nil, nil)
	if err != nil {
		t.Fatalf("%v\n%s", err, b.String())
	}
	again.Store = c.Store
	if diff := cmp.Diff(c.Config, again.Config); diff != "" {
		t.Errorf("read again (-want +got):\n%s", diff)
	}
}

func FuzzLoad(f *testing.F) {
	f.Add("http: 127.0.0.1:1\n")
	f.Add("a: &x [*x]\n")
	f.Add("log: {level: info}\n? a\n: b\n")
	f.Add("!!binary a: b\n<<: *a\n")
	f.Fuzz(func(t *testing.T, file string) {
		_, err := load(file, nil, nil)
		if err != nil && len(errs.FaultsOf(err)) == 0 {
			t.Errorf("%q is %v, without a fault", file, err)
		}
	})
}
