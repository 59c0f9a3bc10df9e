package pbconv

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"pgregory.net/rapid"

	"github.com/gopherqueue/gq"
	pb "github.com/gopherqueue/gq/api/gopherqueue/v1"
	"github.com/gopherqueue/gq/internal/enum"
	"github.com/gopherqueue/gq/internal/errs"
)

// sameValue treats an empty list or map like a nil one.
var sameValue = cmp.Options{cmpopts.EquateEmpty(), cmpopts.EquateNaNs()}

// roundTrip checks that a value survives encoding and decoding.
func roundTrip[V any, M any, P interface {
	*M
	proto.Message
}](t *testing.T, draw *rapid.Generator[V], encode func(*V) P, decode func(P) (V, error)) {
	t.Helper()
	rapid.Check(t, func(r *rapid.T) {
		sent := draw.Draw(r, "sent")
		data, err := proto.Marshal(encode(&sent))
		if err != nil {
			r.Fatal(err)
		}
		m := P(new(M))
		if err := proto.Unmarshal(data, m); err != nil {
			r.Fatal(err)
		}
		got, err := decode(m)
		if err != nil {
			r.Fatal(err)
		}
		if diff := cmp.Diff(sent, got, sameValue); diff != "" {
			r.Fatalf("sent (-), arrived (+):\n%s", diff)
		}
	})
}

func TestProtoRoundTrip(t *testing.T) {
	none := Bases(nil)
	t.Run("Policy", func(t *testing.T) {
		roundTrip(t, drawPolicy, ProtoPolicy, func(m *pb.Policy) (gq.Policy, error) {
			var r protoReader
			p := r.policy("policy.", m, gq.Policy{})
			return p, r.err()
		})
	})
	t.Run("Spec", func(t *testing.T) { roundTrip(t, drawSpec, ProtoSpec, none.Spec) })
	t.Run("State", func(t *testing.T) { roundTrip(t, drawState, ProtoState, StateFromProto) })
	t.Run("Job", func(t *testing.T) { roundTrip(t, drawJob, ProtoJob, JobFromProto) })
	t.Run("Queue", func(t *testing.T) { roundTrip(t, drawQueue, ProtoQueue, QueueFromProto) })
	t.Run("Schedule", func(t *testing.T) { roundTrip(t, drawSchedule, ProtoSchedule, none.Schedule) })
	t.Run("Firing", func(t *testing.T) { roundTrip(t, drawFiring, ProtoFiring, FiringFromProto) })
	t.Run("Backfill", func(t *testing.T) { roundTrip(t, drawBackfill, ProtoBackfill, BackfillFromProto) })
	t.Run("BackfillReport", func(t *testing.T) { roundTrip(t, drawBackfillReport, ProtoBackfillReport, BackfillReportFromProto) })
	t.Run("Explanation", func(t *testing.T) { roundTrip(t, drawExplanation, ProtoExplanation, ExplanationFromProto) })
	t.Run("Beat", func(t *testing.T) { roundTrip(t, drawBeat, ProtoBeat, none.Beat) })
	t.Run("Outcome", func(t *testing.T) { roundTrip(t, drawOutcome, ProtoOutcome, none.Outcome) })
	t.Run("Draft", func(t *testing.T) {
		roundTrip(t, rapid.Custom(func(r *rapid.T) gq.GraphJob {
			d := gq.GraphJob{Spec: drawSpec.Draw(r, "spec"), Ref: maybeOf(drawText).Draw(r, "ref")}
			for range rapid.IntRange(0, 3).Draw(r, "needs") {
				d.Needs = append(d.Needs, gq.Dependency{Kind: drawEnum(r, gq.DependencyFanIn), Ref: maybeOf(drawText).Draw(r, "need")})
			}
			return d
		}), ProtoDraft, none.Draft)
	})
	t.Run("Submitted", func(t *testing.T) {
		roundTrip(t, rapid.Custom(func(r *rapid.T) gq.SubmitResult {
			return gq.SubmitResult{State: drawState.Draw(r, "state"), Existing: rapid.Bool().Draw(r, "existing"), Same: rapid.Bool().Draw(r, "same")}
		}), func(s *gq.SubmitResult) *pb.Submitted { return ProtoSubmitted(s, "") }, SubmittedFromProto)
	})
	t.Run("Answers", func(t *testing.T) {
		roundTrip(t, rapid.SliceOfN(rapid.Custom(func(r *rapid.T) gq.LeaseResult {
			a := gq.LeaseResult{State: drawState.Draw(r, "state")}
			for range rapid.IntRange(0, 2).Draw(r, "spawned") {
				a.Spawned = append(a.Spawned, gq.SubmitResult{State: drawState.Draw(r, "child")})
			}
			return a
		}), 0, 3), func(a *[]gq.LeaseResult) *pb.Answers { return ProtoAnswers(*a, "") }, AnswersFromProto)
	})
	t.Run("Jobs", func(t *testing.T) {
		roundTrip(t, rapid.SliceOfN(drawJob, 0, 3), func(j *[]gq.Job) *pb.Jobs { return &pb.Jobs{Jobs: ProtoJobs(*j)} },
			func(m *pb.Jobs) ([]gq.Job, error) { return JobsFromProto(m.GetJobs()) })
	})
	t.Run("Claim", func(t *testing.T) {
		roundTrip(t, rapid.Custom(func(r *rapid.T) gq.ClaimRequest {
			return gq.ClaimRequest{
				Worker: maybeOf(drawText).Draw(r, "worker"), Queues: maybeOf(drawTexts).Draw(r, "queues"), Types: maybeOf(drawTexts).Draw(r, "types"),
				Offers: maybeOf(drawTexts).Draw(r, "offers"), MaxCost: maybeOf(rapid.Int64()).Draw(r, "cost"), N: maybeOf(drawInt).Draw(r, "n"),
				Wait: maybeOf(drawDuration).Draw(r, "wait"), TTL: maybeOf(drawDuration).Draw(r, "ttl"), Hold: rapid.Bool().Draw(r, "hold"),
			}
		}), ProtoClaim, ClaimFromProto)
	})
	t.Run("Query", func(t *testing.T) {
		roundTrip(t, rapid.Custom(func(r *rapid.T) gq.Query {
			q := gq.Query{
				Queue: maybeOf(drawText).Draw(r, "queue"), CreatedAfter: maybeOf(drawTime).Draw(r, "after"),
				CreatedBefore: maybeOf(drawTime).Draw(r, "before"), OldestFirst: rapid.Bool().Draw(r, "oldest"),
				Types: maybeOf(drawTexts).Draw(r, "types"), Tags: maybeOf(drawLabels).Draw(r, "tags"),
			}
			for range rapid.IntRange(0, 3).Draw(r, "statuses") {
				q.Statuses = append(q.Statuses, drawEnum(r, gq.StatusCancelled))
			}
			return q
		}), ProtoQuery, QueryFromProto)
	})
	t.Run("Update", func(t *testing.T) {
		type update struct {
			ID    gq.JobID
			Patch gq.MetadataPatch
		}
		roundTrip(t, rapid.Custom(func(r *rapid.T) update {
			u := update{ID: drawJobID.Draw(r, "id"), Patch: gq.MetadataPatch{
				Priority: drawEnum(r, gq.PriorityBulk), SetTags: maybeOf(drawLabels).Draw(r, "set"), DropTags: maybeOf(drawTexts).Draw(r, "drop"),
			}}
			for _, text := range []**string{&u.Patch.CorrelationID, &u.Patch.CallbackURL} {
				if rapid.Bool().Draw(r, "given") {
					s := rapid.String().Draw(r, "text")
					*text = &s
				}
			}
			return u
		}), func(u *update) *pb.UpdateRequest { return ProtoUpdate(u.ID, &u.Patch) }, func(m *pb.UpdateRequest) (u update, err error) {
			u.ID, u.Patch, err = UpdateFromProto(m)
			return u, err
		})
	})
	t.Run("Pool", func(t *testing.T) {
		roundTrip(t, rapid.Custom(func(r *rapid.T) gq.Pool {
			return gq.Pool{
				Name: maybeOf(drawText).Draw(r, "name"), Capacity: maybeOf(rapid.Int64()).Draw(r, "capacity"), UpdatedAt: maybeOf(drawTime).Draw(r, "updated"),
			}
		}), ProtoPool, PoolFromProto)
	})
	t.Run("Stats", func(t *testing.T) {
		roundTrip(t, rapid.Custom(func(r *rapid.T) gq.Stats {
			s := gq.Stats{
				Workers: maybeOf(drawInt).Draw(r, "workers"), Commits: rapid.Uint64().Draw(r, "commits"),
				Syncs: rapid.Uint64().Draw(r, "syncs"), DiskBytes: rapid.Uint64().Draw(r, "bytes"), DiskFree: rapid.Uint64().Draw(r, "free"),
			}
			for range rapid.IntRange(0, 3).Draw(r, "queues") {
				c := gq.Count{Queue: maybeOf(drawText).Draw(r, "queue")}
				for _, status := range enum.All[gq.Status]() {
					c.By[status] = maybeOf(rapid.Int64()).Draw(r, "count")
				}
				s.Queues = append(s.Queues, c)
				s.Total.Add(c)
			}
			if rapid.Bool().Draw(r, "database") {
				s.Database = drawDatabase(r)
			}
			return s
		}), ProtoStats, StatsFromProto)
	})
	t.Run("LiveWorker", func(t *testing.T) {
		roundTrip(t, rapid.Custom(func(r *rapid.T) gq.LiveWorker {
			return gq.LiveWorker{
				Name: maybeOf(drawText).Draw(r, "name"), Queues: maybeOf(drawTexts).Draw(r, "queues"), Types: maybeOf(drawTexts).Draw(r, "types"),
				Offers: maybeOf(drawTexts).Draw(r, "offers"), MaxCost: maybeOf(rapid.Int64()).Draw(r, "cost"),
				Waiting: maybeOf(drawInt).Draw(r, "waiting"), Running: maybeOf(drawInt).Draw(r, "running"), LastSeen: maybeOf(drawTime).Draw(r, "seen"),
			}
		}), ProtoLiveWorker, LiveWorkerFromProto)
	})
	t.Run("CancelReport", func(t *testing.T) {
		sent := gq.CancelReport{Cancelled: 1, Requested: 2, Finished: 3}
		if got := CancelReportFromProto(ProtoCancelReport(sent)); got != sent {
			t.Errorf("%+v became %+v", sent, got)
		}
	})
	t.Run("SetQueue", func(t *testing.T) { // replaces every setting
		rapid.Check(t, func(r *rapid.T) {
			q, old := drawQueue.Draw(r, "queue"), drawQueue.Draw(r, "old")
			change, err := QueueChangeFromProto(ProtoSetQueue(&q))
			if err != nil {
				r.Fatal(err)
			}
			change(&old)
			q.Name, q.UpdatedAt = old.Name, old.UpdatedAt
			if diff := cmp.Diff(q, old, sameValue); diff != "" {
				r.Fatal(diff)
			}
		})
	})
}

// Nil and empty mean different things in what a holder reports.
func TestProtoKeepsEmptyApartFromAbsent(t *testing.T) {
	for _, data := range [][]byte{nil, {}} {
		beat, err := Bases(nil).Beat(resent(t, ProtoBeat(&gq.Heartbeat{Checkpoint: data})))
		if err != nil || (beat.Checkpoint == nil) != (data == nil) {
			t.Errorf("checkpoint %#v became %#v, %v", data, beat.Checkpoint, err)
		}
		outcome, err := Bases(nil).Outcome(resent(t, ProtoOutcome(&gq.Outcome{Verdict: gq.VerdictComplete, Result: data})))
		if err != nil || (outcome.Result == nil) != (data == nil) {
			t.Errorf("result %#v became %#v, %v", data, outcome.Result, err)
		}
		job, err := JobFromProto(resent(t, ProtoJob(&gq.Job{Result: data, Checkpoint: data})))
		if err != nil || (job.Result == nil) != (data == nil) || (job.Checkpoint == nil) != (data == nil) {
			t.Errorf("job with %#v became %#v and %#v, %v", data, job.Result, job.Checkpoint, err)
		}
	}
}

// resent encodes and decodes a message.
func resent[M proto.Message](t *testing.T, m M) M {
	t.Helper()
	data, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	out := m.ProtoReflect().New().Interface()
	if err := proto.Unmarshal(data, out); err != nil {
		t.Fatal(err)
	}
	return out.(M)
}

// Every enum of the domain has the same names with the same numbers on the wire, and no
// others.
func TestProtoEnumsAreTotal(t *testing.T) {
	type vocabulary struct {
		enum protoreflect.Enum
		name func(uint8) string
		last uint8
	}
	for _, v := range []vocabulary{
		{pb.Status(0), func(n uint8) string { return gq.Status(n).String() }, uint8(gq.StatusCancelled)},
		{pb.Detail(0), func(n uint8) string { return gq.Detail(n).String() }, uint8(gq.DetailAssigned)},
		{pb.Priority(0), func(n uint8) string { return gq.Priority(n).String() }, uint8(gq.PriorityBulk)},
		{pb.DependencyKind(0), func(n uint8) string { return gq.DependencyKind(n).String() }, uint8(gq.DependencyFanIn)},
		{pb.Preset(0), func(n uint8) string { return gq.Preset(n).String() }, uint8(gq.PresetResilient)},
		{pb.LossRule(0), func(n uint8) string { return gq.LossRule(n).String() }, uint8(gq.LossFails)},
		{pb.ExtendMode(0), func(n uint8) string { return gq.ExtendMode(n).String() }, uint8(gq.ExtendAdd)},
		{pb.Strategy(0), func(n uint8) string { return gq.Strategy(n).String() }, uint8(gq.StrategyCustom)},
		{pb.Jitter(0), func(n uint8) string { return gq.Jitter(n).String() }, uint8(gq.JitterHash)},
		{pb.LeaseState(0), func(n uint8) string { return gq.LeaseState(n).String() }, uint8(gq.LeaseCancelled)},
		{pb.Category(0), func(n uint8) string { return gq.Category(n).String() }, uint8(gq.CategorySystem)},
		{pb.Cause(0), func(n uint8) string { return gq.Cause(n).String() }, uint8(gq.CauseFinished)},
		{pb.EventType(0), func(n uint8) string { return gq.EventType(n).String() }, uint8(gq.EventProviderSlashed)},
		{pb.MissedRule(0), func(n uint8) string { return gq.MissedRule(n).String() }, uint8(gq.MissedAll)},
	} {
		values := v.enum.Descriptor().Values()
		name := v.enum.Descriptor().Name()
		if values.Len() != int(v.last)+1 {
			t.Errorf("%s has %d values, the domain %d and none", name, values.Len(), v.last)
			continue
		}
		prefix := strings.TrimSuffix(string(values.ByNumber(0).Name()), "UNSPECIFIED")
		for n := uint8(1); n <= v.last; n++ {
			word := strings.NewReplacer(".", "_", "-", "_").Replace(strings.ToUpper(v.name(n)))
			if got := string(values.ByNumber(protoreflect.EnumNumber(n)).Name()); got != prefix+word {
				t.Errorf("%s: %d is %s, want %s", name, n, got, prefix+word)
			}
		}
		if more := v.name(v.last + 1); !strings.HasPrefix(more, "unknown(") {
			t.Errorf("%s has no %s", name, more)
		}
	}
}

// The fault of an unknown enum value lists the known ones.
func TestUnknownEnumValue(t *testing.T) {
	_, err := Bases(nil).Spec(&pb.Spec{Metadata: &pb.Metadata{Priority: 6}})
	want := "6 is not one of CRITICAL, HIGH, NORMAL, LOW, BULK"
	if faults := errs.FaultsOf(err); len(faults) != 1 || faults[0].Field != "priority" || faults[0].Problem != want {
		t.Errorf("%v, want %s", err, want)
	}
}

func TestProtoFaults(t *testing.T) {
	const id = "50b86799-7397-404f-977f-e33003605402"
	badTime, badDuration := &timestamppb.Timestamp{Seconds: math.MaxInt64}, &durationpb.Duration{Seconds: math.MaxInt64}
	wrongSign := &durationpb.Duration{Seconds: 1, Nanos: -1}
	none := Bases(nil)
	for _, c := range []struct {
		name   string
		err    error
		fields []string
	}{
		{"Spec", second(none.Spec(&pb.Spec{
			Id: "x", ReplayOf: id[1:], RunAt: badTime, Delay: badDuration, Metadata: &pb.Metadata{Priority: 6},
			DependsOn: []*pb.Dependency{{Kind: 1, JobId: id}, {Kind: -1, JobId: ""}},
			Policy: &pb.Policy{
				Preset: pb.Preset(8).Enum(), OnLoss: pb.LossRule(5).Enum(), Extend: pb.ExtendMode(300).Enum(), LeaseTtl: wrongSign,
				Backoff: &pb.Backoff{Strategy: pb.Strategy(5).Enum(), Jitter: pb.Jitter(-1).Enum(), Initial: badDuration, Max: &durationpb.Duration{Seconds: 9_223_372_037}},
			},
		})), []string{
			"id", "run_at", "delay", "replay_of", "priority", "policy.preset", "policy.backoff.strategy", "policy.backoff.initial",
			"policy.backoff.max", "policy.backoff.jitter", "policy.on_loss", "policy.lease_ttl", "policy.extend",
			"depends_on[1].job_id", "depends_on[1].kind",
		}},
		{"Draft", second(none.Draft(&pb.Draft{Spec: &pb.Spec{RunAt: badTime}, Needs: []*pb.Need{{Kind: 1}, {Kind: 9}}})), []string{"run_at", "needs[1].kind"}},
		{"Claim", second(ClaimFromProto(&pb.ClaimRequest{Wait: badDuration, Ttl: wrongSign})), []string{"wait", "ttl"}},
		{"Beat", second(none.Beat(&pb.Beat{Spawn: []*pb.Spec{{}, {Delay: badDuration}}})), []string{"spawn[1].delay"}},
		{"Outcome", second(none.Outcome(&pb.Outcome{Verdict: &pb.Outcome_Fail{Fail: &pb.Failure{Category: 6, RetryAfter: badDuration}}})), []string{"failure.category", "failure.retry_after"}},
		{"Release", second(none.Outcome(&pb.Outcome{Verdict: &pb.Outcome_Release{Release: &pb.Release{Delay: badDuration}}})), []string{"delay"}},
		{"Query", second(QueryFromProto(&pb.Query{Statuses: []pb.Status{1, 11}, CreatedAfter: badTime, CreatedBefore: badTime})), []string{"created_after", "created_before", "statuses[1]"}},
		{"Schedule", second(none.Schedule(&pb.Schedule{Every: badDuration, Start: badTime, Missed: 4, Overlap: 5, End: badTime, Jitter: badDuration, Template: &pb.Spec{Id: "?"}})), []string{"every", "start", "missed", "overlap", "end", "jitter", "template.id"}},
		{"Backfill", second(BackfillFromProto(&pb.BackfillScheduleRequest{From: badTime, To: badTime})), []string{"from", "to"}},
		{"SetQueue", second(QueueChangeFromProto(&pb.SetQueueRequest{Policy: &pb.Policy{Hold: badDuration}, Rate: &pb.Rate{Per: badDuration}})), []string{"policy.hold", "rate.per"}},
		{"Job", second(JobsFromProto([]*pb.Job{{}, {State: &pb.State{Id: "x", Status: 11, Lease: &pb.Lease{State: 5}}, Spec: &pb.Spec{RunAt: badTime}}})), []string{
			"jobs[1].spec.run_at", "jobs[1].state.id", "jobs[1].state.status", "jobs[1].state.lease.state",
		}},
		{"Duration", second(DurationFromProto("ttl", badDuration)), []string{"ttl"}},
		{"ID", second(JobIDFromProto("")), []string{"id"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var fields []string
			for _, f := range errs.FaultsOf(c.err) {
				fields = append(fields, f.Field)
			}
			if diff := cmp.Diff(c.fields, fields); diff != "" {
				t.Errorf("%v\n%s", c.err, diff)
			}
			if errs.KindOf(c.err) != gq.KindInvalid {
				t.Errorf("%v is not invalid", c.err)
			}
		})
	}
}

func second[V any](_ V, err error) error { return err }

func TestPolicyBases(t *testing.T) {
	queue := gq.PresetSemantics.Policy()
	queue.MaxAttempts = 9
	attempts := int64(7)
	asked := ""
	bases := Bases(func(name string) (gq.Policy, error) {
		asked = name
		return queue, nil
	})
	for _, c := range []struct {
		name  string
		spec  *pb.Spec
		asks  string
		check func(gq.Policy) bool
	}{
		{"absent is left to the engine", &pb.Spec{Queue: "q"}, "", func(p gq.Policy) bool { return p == gq.Policy{} }},
		{"partial starts from the queue", &pb.Spec{Queue: "q", Policy: &pb.Policy{LeaseTtl: durationpb.New(time.Second)}}, "q", func(p gq.Policy) bool {
			want := queue
			want.LeaseTTL = time.Second
			return p == want
		}},
		{"the default queue has a name", &pb.Spec{Policy: &pb.Policy{}}, gq.DefaultQueue, func(p gq.Policy) bool { return p == queue }},
		{"a preset asks nobody", &pb.Spec{Queue: "q", Policy: &pb.Policy{Preset: pb.Preset_PRESET_SCHEDULER.Enum(), MaxAttempts: &attempts}}, "", func(p gq.Policy) bool {
			want := gq.PresetScheduler.Policy()
			want.MaxAttempts = 7
			return p == want
		}},
	} {
		asked = ""
		s, err := bases.Spec(c.spec)
		if err != nil || asked != c.asks || !c.check(s.Policy) {
			t.Errorf("%s: asked for %q, got %+v, %v", c.name, asked, s.Policy, err)
		}
	}
	failing := Bases(func(string) (gq.Policy, error) { return gq.Policy{}, gq.ErrStoreFailed })
	if _, err := failing.Draft(&pb.Draft{Spec: &pb.Spec{Policy: &pb.Policy{}}}); errs.KindOf(err) != gq.KindUnavailable {
		t.Errorf("an error of the store became %v", err)
	}
}

// Strings that cannot be sent are found in their message.
func TestText(t *testing.T) {
	const bad = "\xff"
	for _, c := range []struct {
		message proto.Message
		fields  string
	}{
		{&pb.SubmitRequest{Spec: &pb.Spec{Type: bad}}, "type"},
		{&pb.SubmitRequest{Spec: &pb.Spec{Payload: []byte(bad)}}, "-"},
		{&pb.SubmitRequest{Spec: &pb.Spec{Requires: []string{"a", bad}, Metadata: &pb.Metadata{CorrelationId: bad}}}, "metadata.correlation_id requires[1]"},
		{&pb.SubmitBatchRequest{Specs: []*pb.Spec{{}, {Queue: bad}}}, "specs[1].queue"},
		{&pb.WorkRequest{Message: &pb.WorkRequest_Settle{Settle: &pb.SettleRequest{Outcomes: []*pb.Outcome{{Lease: &pb.LeaseRef{Id: bad}}}}}}, "settle.outcomes[0].lease.id"},
		{&pb.GetRequest{Id: "fine"}, "-"},
	} {
		for name, err := range map[string]error{
			"CheckText": CheckText(c.message),
			"Malformed": Malformed(unchecked(c.message), c.message.ProtoReflect().Descriptor()),
		} {
			var fields []string
			for _, f := range errs.FaultsOf(err) {
				fields = append(fields, f.Field)
			}
			want := c.fields
			if want == "-" { // the text is valid
				want = map[string]string{"CheckText": "", "Malformed": "request"}[name]
			}
			if !sameWords(strings.Join(fields, " "), want) {
				t.Errorf("%s of %v: %v, want %s", name, c.message, err, want)
			}
		}
	}
	tags := &pb.SubmitRequest{Spec: &pb.Spec{Metadata: &pb.Metadata{Tags: map[string]string{"k": bad}}}}
	if err := CheckText(tags); !strings.Contains(fmt.Sprint(err), `metadata.tags["k"]`) {
		t.Errorf("tags: %v", err)
	}
	if err := Malformed(unchecked(tags), tags.ProtoReflect().Descriptor()); !strings.Contains(fmt.Sprint(err), "metadata.tags[0]") {
		t.Errorf("tags: %v", err)
	}
	if err := Malformed([]byte{0xff}, tags.ProtoReflect().Descriptor()); !strings.Contains(fmt.Sprint(err), "request: is not a valid gopherqueue.v1.SubmitRequest") {
		t.Errorf("no message at all: %v", err)
	}
}

func sameWords(a, b string) bool {
	x, y := strings.Fields(a), strings.Fields(b)
	return cmp.Equal(x, y, cmpopts.EquateEmpty(), cmpopts.SortSlices(func(a, b string) bool { return a < b }))
}
