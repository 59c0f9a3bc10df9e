package machine_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/enum"
	"github.com/gopherqueue/gq/internal/testing/spec"
	"github.com/gopherqueue/gq/machine"
)

func jobID(n byte) gq.JobID { return machine.NewJobID([16]byte{15: n}) }

func delays(b gq.Backoff, d machine.Draw, retries ...int) []time.Duration {
	out := make([]time.Duration, len(retries))
	for i, n := range retries {
		out[i] = machine.Delay(b, n, jobID(1), d)
	}
	return out
}

func TestDelayByStrategy(t *testing.T) {
	spec.Covers(t, "J-67", "J-68", "J-69")
	const s = time.Second
	for _, test := range []struct {
		strategy gq.Strategy
		retries  []int
		want     []time.Duration
	}{
		{gq.StrategyConstant, []int{1, 2, 3, 10, 1000}, []time.Duration{s, s, s, s, s}},
		{gq.StrategyLinear, []int{1, 2, 3, 3599, 3600, 3601}, []time.Duration{s, 2 * s, 3 * s, 3599 * s, 3600 * s, 3600 * s}},
		{gq.StrategyExponential, []int{1, 2, 3, 4, 12, 13, 14}, []time.Duration{s, 2 * s, 4 * s, 8 * s, 2048 * s, 3600 * s, 3600 * s}},
	} {
		t.Run(test.strategy.String(), func(t *testing.T) {
			b := gq.Backoff{Strategy: test.strategy, Initial: s, Max: time.Hour, Multiplier: 2, Jitter: gq.JitterNone}
			if got := delays(b, machine.Draw{U: 0.7}, test.retries...); !slices.Equal(got, test.want) {
				t.Errorf("retries %v wait %v, want %v", test.retries, got, test.want)
			}
		})
	}
}

func TestDelayWithAnotherMultiplier(t *testing.T) {
	b := gq.Backoff{Strategy: gq.StrategyExponential, Initial: time.Second, Max: time.Hour, Multiplier: 1.1, Jitter: gq.JitterNone}
	want := []time.Duration{time.Second, 1100 * time.Millisecond, 1210 * time.Millisecond, 1331 * time.Millisecond}
	if got := delays(b, machine.Draw{}, 1, 2, 3, 4); !slices.Equal(got, want) {
		t.Errorf("delays %v, want %v", got, want)
	}
}

func TestDelayCustom(t *testing.T) {
	spec.Covers(t, "J-70")
	type call struct {
		n             int
		initial, most time.Duration
	}
	var calls []call
	answer := 90 * time.Second
	draw := machine.Draw{Custom: func(name string) machine.BackoffFunc {
		if name != "fibonacci" {
			return nil
		}
		return func(n int, initial, most time.Duration) time.Duration {
			calls = append(calls, call{n, initial, most})
			return answer
		}
	}}
	b := gq.Backoff{Strategy: gq.StrategyCustom, Initial: time.Second, Max: time.Minute, Multiplier: 2, Jitter: gq.JitterNone, Custom: "fibonacci"}

	if got := machine.Delay(b, 7, jobID(1), draw); got != time.Minute {
		t.Errorf("above the maximum: %v, want %v", got, time.Minute)
	}
	if want := []call{{7, time.Second, time.Minute}}; !slices.Equal(calls, want) {
		t.Errorf("called with %v, want %v", calls, want)
	}
	answer = -time.Second
	if got := machine.Delay(b, 1, jobID(1), draw); got != 0 {
		t.Errorf("negative answer: %v, want 0", got)
	}
	answer = 5 * time.Second
	if got := machine.Delay(b, 1, jobID(1), draw); got != answer {
		t.Errorf("answer in range: %v, want %v", got, answer)
	}

	t.Run("Unregistered", func(t *testing.T) {
		b.Custom = "unknown"
		for _, d := range []machine.Draw{draw, {}} {
			want := []time.Duration{time.Second, 2 * time.Second, 4 * time.Second}
			if got := delays(b, d, 1, 2, 3); !slices.Equal(got, want) {
				t.Errorf("delays %v, want those of the exponential strategy, %v", got, want)
			}
		}
	})

	t.Run("Panics", func(t *testing.T) {
		broken := machine.Draw{Custom: func(string) machine.BackoffFunc {
			return func(n int, _, _ time.Duration) time.Duration { return []time.Duration{0}[n] }
		}}
		want := []time.Duration{time.Second, 2 * time.Second, 4 * time.Second}
		if got := delays(b, broken, 1, 2, 3); !slices.Equal(got, want) {
			t.Errorf("delays %v, want those of the exponential strategy, %v", got, want)
		}
	})
}

func TestDelayJitterTenth(t *testing.T) {
	spec.Covers(t, "J-74")
	b := gq.Backoff{Strategy: gq.StrategyConstant, Initial: 10 * time.Second, Max: time.Hour, Jitter: gq.JitterTenth}
	for _, test := range []struct {
		u    float64
		want time.Duration
	}{{0, 9 * time.Second}, {0.25, 9500 * time.Millisecond}, {0.5, 10 * time.Second}, {0.75, 10500 * time.Millisecond}} {
		if got := machine.Delay(b, 1, jobID(1), machine.Draw{U: test.u}); got != test.want {
			t.Errorf("U = %v waits %v, want %v", test.u, got, test.want)
		}
	}
	// Without jitter the delay is exact, whatever the random number.
	b.Jitter = gq.JitterNone
	if got := machine.Delay(b, 1, jobID(1), machine.Draw{U: 0.9}); got != 10*time.Second {
		t.Errorf("without jitter %v, want 10s", got)
	}
	// The maximum also limits the delay with jitter.
	b.Jitter, b.Max = gq.JitterTenth, 10*time.Second
	if got := machine.Delay(b, 1, jobID(1), machine.Draw{U: 0.9}); got != 10*time.Second {
		t.Errorf("at the maximum %v, want 10s", got)
	}
}

func TestDelayJitterFull(t *testing.T) {
	spec.Covers(t, "Q-73", "Q-74", "Q-75", "Q-76")
	b := gq.PresetSemantics.Policy().Backoff
	for n := 1; n <= 40; n++ {
		bound := min(500*time.Millisecond<<min(n-1, 10), 30*time.Second)
		var inQuarter [4]int
		for i := range 400 {
			u := float64(i) / 400
			got := machine.Delay(b, n, jobID(1), machine.Draw{U: u})
			if got < 0 || got >= bound {
				t.Fatalf("retry %d, U = %v: %v is not in [0, %v)", n, u, got, bound)
			}
			inQuarter[4*got/bound]++
		}
		// The delays are spread evenly over the whole interval.
		for q, count := range inQuarter {
			if count < 99 || count > 101 {
				t.Errorf("retry %d: quarter %d of the interval got %d of 400", n, q+1, count)
			}
		}
	}
	if got := machine.Delay(b, 1, jobID(1), machine.Draw{U: math.Nextafter(1, 0)}); got < 499*time.Millisecond {
		t.Errorf("largest draw of the first retry is %v, want almost 500ms", got)
	}
}

// hashRow is one published row of hash backoff: attempts 0 to 9.
type hashRow struct {
	job     string
	jitter  [10]int64
	ai      [10]int64 // base 5 s
	quantum [10]int64 // base 2 s
}

var hashRows = []hashRow{
	{
		job:     "job-0001",
		jitter:  [10]int64{-13296608, 82502708, -72249239, -33006745, 91220383, 35585611, -88611860, -6716213, 81938502, 44371034},
		ai:      [10]int64{5, 11, 19, 39, 87, 166, 292, 636, 974, 940},
		quantum: [10]int64{2, 4, 7, 15, 35, 66, 117, 254, 554, 940},
	},
	{
		job:     "jobb-å",
		jitter:  [10]int64{-89097824, 46642985, -21023574, -39148812, -24442840, -89364485, 22818836, -36458081, 15686285, -99679027},
		ai:      [10]int64{5, 10, 20, 38, 78, 146, 327, 617, 914, 810},
		quantum: [10]int64{2, 4, 8, 15, 31, 58, 131, 247, 520, 810},
	},
}

func TestHashBackoffVectors(t *testing.T) {
	spec.Covers(t, "M-83", "M-84", "M-85", "M-86", "M-87", "M-89")
	ai, quantum := gq.PresetAI.Policy().Backoff, gq.PresetQuantum.Policy().Backoff
	for _, row := range hashRows {
		for attempt := range 10 {
			if got := machine.HashJitter(row.job, attempt); got != row.jitter[attempt] {
				t.Errorf("%s attempt %d: jitter %d ppb, want %d", row.job, attempt, got, row.jitter[attempt])
			}
			if got := machine.HashBackoff(ai.Initial, ai.Max, 2e9, row.job, attempt); got != row.ai[attempt] {
				t.Errorf("%s attempt %d: AI waits %d s, want %d", row.job, attempt, got, row.ai[attempt])
			}
			if got := machine.HashBackoff(quantum.Initial, quantum.Max, 2e9, row.job, attempt); got != row.quantum[attempt] {
				t.Errorf("%s attempt %d: QUANTUM waits %d s, want %d", row.job, attempt, got, row.quantum[attempt])
			}
		}
	}
}

func TestHashBackoffRounding(t *testing.T) {
	spec.Covers(t, "M-87")
	for _, test := range []struct {
		seconds uint64
		jitter  int64
		want    int64
	}{
		{5, 100_000_000, 6},   // 5.5
		{5, -100_000_000, 4},  // 4.5
		{10, 50_000_000, 10},  // 10.5
		{10, -50_000_000, 10}, // 9.5
		{900, 100_000_000, 990},
		{10, 50_000_001, 11},
		{10, -50_000_001, 9},
	} {
		if got := machine.Jittered(test.seconds*1e9, test.jitter); got != test.want {
			t.Errorf("%d s moved by %d ppb is %d s, want %d", test.seconds, test.jitter, got, test.want)
		}
	}
}

// Over many jobs the jitter stays within a tenth, repeats for the same job and attempt, and
// is as often positive as negative.
func TestHashJitterIsSymmetric(t *testing.T) {
	spec.Covers(t, "M-88", "M-90")
	const jobs = 10_000
	var sum, below int64
	for i := range jobs {
		job := fmt.Sprintf("job-%05d", i)
		jitter := machine.HashJitter(job, i%7)
		if jitter < -100_000_000 || jitter > 100_000_000 {
			t.Fatalf("%s: %d ppb is more than a tenth", job, jitter)
		}
		if machine.HashJitter(job, i%7) != jitter {
			t.Fatalf("%s: a second call differs", job)
		}
		sum += jitter
		if jitter < 0 {
			below++
		}
	}
	// Four standard deviations: 50 for the signs, 0.6 ‰ for the mean.
	if below < jobs/2-200 || below > jobs/2+200 {
		t.Errorf("%d of %d are negative", below, jobs)
	}
	if mean := sum / jobs; mean < -2_400_000 || mean > 2_400_000 {
		t.Errorf("the mean is %d ppb", mean)
	}
}

func TestDelayHash(t *testing.T) {
	b := gq.PresetAI.Policy().Backoff
	id := jobID(9)
	for n := 1; n <= 12; n++ {
		want := time.Duration(machine.HashBackoff(b.Initial, b.Max, 2e9, id.String(), n-1)) * time.Second
		for _, u := range []float64{0, 0.5, 0.99} {
			if got := machine.Delay(b, n, id, machine.Draw{U: u}); got != want {
				t.Errorf("retry %d, U = %v: %v, want %v", n, u, got, want)
			}
		}
	}
	// The other strategies use the same jitter and rounding.
	for _, strategy := range []gq.Strategy{gq.StrategyConstant, gq.StrategyLinear, gq.StrategyCustom} {
		b := gq.Backoff{Strategy: strategy, Initial: 20 * time.Second, Max: 50 * time.Second, Multiplier: 2, Jitter: gq.JitterHash, Custom: "x"}
		draw := machine.Draw{Custom: func(string) machine.BackoffFunc {
			return func(n int, initial, _ time.Duration) time.Duration { return initial + time.Duration(n)*time.Second }
		}}
		plain := b
		plain.Jitter = gq.JitterNone
		for n := 1; n <= 5; n++ {
			bound := machine.Delay(plain, n, id, draw)
			want := time.Duration(machine.Jittered(uint64(bound), machine.HashJitter(id.String(), n-1))) * time.Second
			if got := machine.Delay(b, n, id, draw); got != want {
				t.Errorf("%v, retry %d: %v, want %v", strategy, n, got, want)
			}
		}
	}
}

// For any numbers, even invalid ones, a delay is not negative, is at most the maximum (plus
// the tenth that JitterHash may add), and is computed quickly.
func TestDelayStaysInBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := gq.Backoff{
			Strategy:   gq.Strategy(rapid.IntRange(0, 5).Draw(t, "strategy")),
			Initial:    time.Duration(rapid.Int64().Draw(t, "initial")),
			Max:        time.Duration(rapid.Int64().Draw(t, "max")),
			Multiplier: rapid.OneOf(rapid.Float64(), rapid.SampledFrom([]float64{1, 1.5, 2, 10, math.NaN(), math.Inf(1)})).Draw(t, "multiplier"),
			Jitter:     gq.Jitter(rapid.IntRange(0, 5).Draw(t, "jitter")),
			Custom:     "f",
		}
		answer := time.Duration(rapid.Int64().Draw(t, "answer"))
		draw := machine.Draw{U: rapid.OneOf(rapid.Float64(), rapid.Float64Range(0, 1)).Draw(t, "u")}
		if rapid.Bool().Draw(t, "registered") {
			draw.Custom = func(string) machine.BackoffFunc {
				return func(int, time.Duration, time.Duration) time.Duration { return answer }
			}
		}
		n := rapid.OneOf(rapid.Int(), rapid.IntRange(-1, 40)).Draw(t, "n")
		got := machine.Delay(b, n, jobID(3), draw)
		most := max(b.Max, 0)
		if b.Jitter == gq.JitterHash {
			most = min(most, 1_000_000*time.Second)
			most += most/10 + time.Second
		}
		if got < 0 || got > most {
			t.Fatalf("%+v: retry %d waits %v, maximum %v", b, n, got, most)
		}
	})
}

func TestDelayAtTheEdges(t *testing.T) {
	for _, jitter := range enum.All[gq.Jitter]() {
		for _, strategy := range enum.All[gq.Strategy]() {
			b := gq.Backoff{Strategy: strategy, Initial: math.MaxInt64, Max: math.MaxInt64, Multiplier: math.MaxFloat64, Jitter: jitter}
			for _, n := range []int{math.MinInt, 0, 1, 2, math.MaxInt} {
				for _, u := range []float64{-1, 0, 0.5, math.Nextafter(1, 0), 1, math.NaN(), math.Inf(1)} {
					if got := machine.Delay(b, n, jobID(1), machine.Draw{U: u}); got < 0 || got > gq.MaxDuration {
						t.Errorf("%v with jitter %v: retry %d, U = %v waits %v", strategy, jitter, n, u, got)
					}
				}
			}
		}
	}
}

// Without jitter a valid delay never decreases from one retry to the next.
func TestDelayGrows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := gq.Backoff{
			Strategy:   rapid.SampledFrom([]gq.Strategy{gq.StrategyConstant, gq.StrategyLinear, gq.StrategyExponential}).Draw(t, "strategy"),
			Initial:    time.Duration(rapid.Int64Range(1, int64(time.Hour)).Draw(t, "initial")),
			Multiplier: rapid.Float64Range(1, 100).Draw(t, "multiplier"),
			Jitter:     gq.JitterNone,
		}
		b.Max = time.Duration(rapid.Int64Range(int64(b.Initial), int64(gq.MaxDuration)).Draw(t, "max"))
		if err := machine.CheckBackoff(b); err != nil {
			t.Fatal(err)
		}
		n := rapid.IntRange(1, 1_000_000).Draw(t, "n")
		if this, next := machine.Delay(b, n, jobID(1), machine.Draw{}), machine.Delay(b, n+1, jobID(1), machine.Draw{}); next < this {
			t.Fatalf("%+v: retry %d waits %v, the next only %v", b, n, this, next)
		}
	})
}

func TestBackoffValidate(t *testing.T) {
	valid := gq.Backoff{Strategy: gq.StrategyExponential, Initial: time.Second, Max: time.Hour, Multiplier: 2, Jitter: gq.JitterNone}
	with := func(change func(*gq.Backoff)) gq.Backoff {
		b := valid
		change(&b)
		return b
	}
	hash := func(change func(*gq.Backoff)) gq.Backoff {
		return with(func(b *gq.Backoff) { b.Jitter = gq.JitterHash; change(b) })
	}
	for _, test := range []struct {
		name   string
		b      gq.Backoff
		fields []string
	}{
		{"Valid", valid, nil},
		{"Zero", gq.Backoff{}, []string{"strategy", "jitter", "initial", "max", "multiplier"}},
		{"Everything", gq.Backoff{Strategy: 9, Jitter: 9, Initial: -1, Max: -2, Multiplier: 0.5, Custom: "x"}, []string{"strategy", "jitter", "initial", "max", "multiplier", "custom"}},
		{"MaxBelowInitial", with(func(b *gq.Backoff) { b.Max = b.Initial - 1 }), []string{"max"}},
		{"MaxIsInitial", with(func(b *gq.Backoff) { b.Max = b.Initial }), nil},
		{"TooLong", with(func(b *gq.Backoff) { b.Initial, b.Max = gq.MaxDuration+1, gq.MaxDuration+1 }), []string{"initial", "max"}},
		{"MultiplierBelowOne", with(func(b *gq.Backoff) { b.Multiplier = 0.999 }), []string{"multiplier"}},
		{"MultiplierNaN", with(func(b *gq.Backoff) { b.Multiplier = math.NaN() }), []string{"multiplier"}},
		{"MultiplierInfinite", with(func(b *gq.Backoff) { b.Multiplier = math.Inf(1) }), []string{"multiplier"}},
		{"MultiplierUnused", with(func(b *gq.Backoff) { b.Strategy, b.Multiplier = gq.StrategyConstant, 0 }), nil},
		{"MultiplierUnusedNaN", with(func(b *gq.Backoff) { b.Strategy, b.Multiplier = gq.StrategyLinear, math.NaN() }), []string{"multiplier"}},
		{"CustomMissing", with(func(b *gq.Backoff) { b.Strategy = gq.StrategyCustom }), []string{"custom"}},
		{"CustomTooLong", with(func(b *gq.Backoff) { b.Strategy, b.Custom = gq.StrategyCustom, string(make([]byte, 257)) }), []string{"custom"}},
		{"CustomNotText", with(func(b *gq.Backoff) { b.Strategy, b.Custom = gq.StrategyCustom, "\xff" }), []string{"custom"}},
		{"CustomNamed", with(func(b *gq.Backoff) { b.Strategy, b.Custom = gq.StrategyCustom, "fibonacci" }), nil},
		{"CustomUnasked", with(func(b *gq.Backoff) { b.Custom = "fibonacci" }), []string{"custom"}},
		{"Hash", hash(func(*gq.Backoff) {}), nil},
		{"HashLimits", hash(func(b *gq.Backoff) { b.Max, b.Multiplier = 1_000_000*time.Second, 10 }), nil},
		{"HashNineDecimals", hash(func(b *gq.Backoff) { b.Multiplier = 1.000000001 }), nil},
		{"HashTenDecimals", hash(func(b *gq.Backoff) { b.Multiplier = 1.0000000001 }), []string{"multiplier"}},
		{"HashFractions", hash(func(b *gq.Backoff) { b.Initial, b.Max = 1500*time.Millisecond, 2500*time.Millisecond }), []string{"initial", "max"}},
		{"HashTooLong", hash(func(b *gq.Backoff) { b.Max = 1_000_001 * time.Second }), []string{"max"}},
		{"HashMultiplier", hash(func(b *gq.Backoff) { b.Multiplier = 10.5 }), []string{"multiplier"}},
		{"HashConstant", hash(func(b *gq.Backoff) { b.Strategy, b.Multiplier = gq.StrategyConstant, 0 }), nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := machine.CheckBackoff(test.b)
			want := make([]string, len(test.fields))
			for i, field := range test.fields {
				want[i] = "backoff." + field
			}
			if got := faultFields(err); !slices.Equal(got, want) {
				t.Errorf("faults in %v, want %v: %v", got, want, err)
			}
			if err != nil && !errors.Is(err, gq.ErrInvalid) {
				t.Errorf("%v is not ErrInvalid", err)
			}
		})
	}
}

// faultFields lists the fields that an error names, in order.
func faultFields(err error) []string {
	fields := []string{}
	if invalid, ok := errors.AsType[*gq.InvalidError](err); ok {
		for _, f := range invalid.Faults {
			fields = append(fields, f.Field)
		}
	}
	return fields
}

func TestBackoffNames(t *testing.T) {
	checkNames(t, enum.All[gq.Strategy](), enum.Parse[gq.Strategy], "constant", "linear", "exponential", "custom")
	checkNames(t, enum.All[gq.Jitter](), enum.Parse[gq.Jitter], "none", "tenth", "full", "hash")
}
