package pbconv

import (
	"reflect"
	"strconv"

	"google.golang.org/protobuf/proto"

	"github.com/gopherqueue/gq"
	pb "github.com/gopherqueue/gq/api/gopherqueue/v1"
	"github.com/gopherqueue/gq/internal/enum"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/machine"
)

// ProtoQueue encodes the settings of a queue.
func ProtoQueue(q *gq.Queue) *pb.Queue {
	return &pb.Queue{
		Name: q.Name, Policy: ProtoPolicy(&q.Policy), Paused: q.Paused, MaxRunning: int64(q.MaxRunning), MaxDepth: int64(q.MaxDepth),
		Rate: protoRate(q.Rate), KeyLimit: int64(q.KeyLimit), Fair: q.Fair, Pool: q.Pool, UpdatedAt: protoTime(q.UpdatedAt),
		KeyRate: protoRate(q.KeyRate), OwnKeys: int64(q.OwnKeys),
	}
}

// QueueFromProto decodes the settings of a queue.
func QueueFromProto(m *pb.Queue) (gq.Queue, error) {
	var r protoReader
	q := gq.Queue{
		Name: m.GetName(), Paused: m.GetPaused(),
		MaxRunning: r.int("", "max_running", m.GetMaxRunning()), MaxDepth: r.int("", "max_depth", m.GetMaxDepth()),
		Rate: r.rate("rate.", m.GetRate()), KeyLimit: r.int("", "key_limit", m.GetKeyLimit()),
		KeyRate: r.rate("key_rate.", m.GetKeyRate()), OwnKeys: r.int("", "own_keys", m.GetOwnKeys()),
		Fair: m.GetFair(), Pool: m.GetPool(), UpdatedAt: r.time("", "updated_at", m.GetUpdatedAt()),
	}
	if m.GetPolicy() != nil {
		q.Policy = r.policy("policy.", m.GetPolicy(), machine.DefaultPolicy())
	}
	return q, r.err()
}

func protoRate(rate gq.Rate) *pb.Rate {
	if !rate.Limited() {
		return nil
	}
	return &pb.Rate{Count: int64(rate.Count), Per: protoDuration(rate.Per), Burst: int64(rate.Burst)}
}

func (r *protoReader) rate(at string, m *pb.Rate) gq.Rate {
	return gq.Rate{
		Count: r.int(at, "count", m.GetCount()), Per: r.duration(at, "per", m.GetPer()), Burst: r.int(at, "burst", m.GetBurst()),
	}
}

// ProtoSetQueue encodes a change that replaces all settings. A zero policy means the default of
// the server.
func ProtoSetQueue(q *gq.Queue) *pb.SetQueueRequest {
	running, depth, keys := int64(q.MaxRunning), int64(q.MaxDepth), int64(q.KeyLimit)
	m := &pb.SetQueueRequest{
		Name: q.Name, Paused: &q.Paused, MaxRunning: &running, MaxDepth: &depth,
		Rate: protoRate(q.Rate), KeyRate: protoRate(q.KeyRate), KeyLimit: &keys, Fair: &q.Fair, Pool: &q.Pool,
	}
	if m.DefaultPolicy = q.Policy == (gq.Policy{}); !m.DefaultPolicy {
		m.Policy = ProtoPolicy(&q.Policy)
	}
	if m.Rate == nil {
		m.Rate = &pb.Rate{}
	}
	if m.KeyRate == nil {
		m.KeyRate = &pb.Rate{}
	}
	return m
}

// ProtoDeclareQueue encodes a declaration of the settings that change sets. The server fills in
// the others.
func ProtoDeclareQueue(name string, change func(*gq.Queue)) *pb.SetQueueRequest {
	q := gq.Queue{Name: name}
	change(&q)
	m := ProtoSetQueue(&q)
	m.Declare, m.DefaultPolicy, m.Policy = true, false, policySetBy(name, change)
	return m
}

// ProtoNewQueue encodes the settings that change sets in a queue that is not configured. The
// others are the server's defaults, which the caller does not know.
func ProtoNewQueue(name string, change func(*gq.Queue)) *pb.SetQueueRequest {
	before := machine.NewQueue(name)
	after := before
	change(&after)
	after.Name = name
	m := ProtoChangeQueue(&before, &after)
	switch set := policySetBy(name, change); { // also to what the caller takes for the default
	case set == nil || m.GetDefaultPolicy():
	case m.Policy == nil:
		m.Policy = set
	case m.Policy.Preset == nil: // otherwise it is complete
		proto.Merge(m.Policy, set)
	}
	return m
}

// policySetBy encodes the settings of a policy that change sets; nil is none.
func policySetBy(name string, change func(*gq.Queue)) *pb.Policy {
	// A setting that is equal afterwards, although it was not before, has been set.
	before := [2]gq.Policy{distinctPolicy(1), distinctPolicy(2)}
	one, two := gq.Queue{Name: name, Policy: before[0]}, gq.Queue{Name: name, Policy: before[1]}
	change(&one)
	change(&two)
	switch {
	case one.Policy == before[0] || one.Policy == (gq.Policy{}):
		return nil
	case one.Policy == two.Policy:
		return ProtoPolicy(&one.Policy)
	}
	unset := one.Policy
	differIn(reflect.ValueOf(&unset).Elem(), reflect.ValueOf(two.Policy), reflect.ValueOf(before[0]), reflect.ValueOf(before[1]))
	return protoPolicyOver(&one.Policy, &unset)
}

// distinctPolicy returns a policy that differs in every setting from that for another n, 1 or 2.
func distinctPolicy(n int) (p gq.Policy) {
	fillDistinct(reflect.ValueOf(&p).Elem(), n)
	return p
}

func fillDistinct(v reflect.Value, n int) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fillDistinct(v.Field(i), n)
		}
	case reflect.Bool:
		v.SetBool(n == 1)
	case reflect.String:
		v.SetString(strconv.Itoa(n))
	case reflect.Float64:
		v.SetFloat(float64(n))
	case reflect.Uint8:
		v.SetUint(uint64(n))
	default:
		v.SetInt(int64(n))
	}
}

// differIn changes the settings of v that are the same in other, to a value that they had in one
// of two policies before.
func differIn(v, other, first, second reflect.Value) {
	for i := range v.NumField() {
		switch field := v.Field(i); {
		case field.Kind() == reflect.Struct:
			differIn(field, other.Field(i), first.Field(i), second.Field(i))
		case !field.Equal(other.Field(i)):
		case field.Equal(first.Field(i)):
			field.Set(second.Field(i))
		default:
			field.Set(first.Field(i))
		}
	}
}

// ProtoChangeQueue encodes the difference between two versions of a queue's settings.
func ProtoChangeQueue(before, after *gq.Queue) *pb.SetQueueRequest {
	m := &pb.SetQueueRequest{
		Name: after.Name, Paused: changed(after.Paused, before.Paused),
		MaxRunning: changedInt(after.MaxRunning, before.MaxRunning), MaxDepth: changedInt(after.MaxDepth, before.MaxDepth),
		KeyLimit: changedInt(after.KeyLimit, before.KeyLimit), Fair: changed(after.Fair, before.Fair), Pool: changed(after.Pool, before.Pool),
	}
	m.Rate, m.KeyRate = changedRate(after.Rate, before.Rate), changedRate(after.KeyRate, before.KeyRate)
	switch {
	case after.Policy == before.Policy:
	case after.Policy == (gq.Policy{}):
		m.DefaultPolicy = true
	case after.Policy.Preset != before.Policy.Preset:
		m.Policy = ProtoPolicy(&after.Policy)
	default:
		m.Policy = protoPolicyOver(&after.Policy, &before.Policy)
	}
	return m
}

func changedRate(after, before gq.Rate) *pb.Rate {
	if after == before {
		return nil
	}
	if m := protoRate(after); m != nil {
		return m
	}
	return &pb.Rate{}
}

// QueueChangeFromProto decodes a change of a queue into a function that applies it.
func QueueChangeFromProto(m *pb.SetQueueRequest) (func(*gq.Queue), error) {
	change := func(q *gq.Queue) error {
		var r protoReader
		switch {
		case m.GetPolicy() != nil && m.GetDefaultPolicy():
			r.fault("", "default_policy", "cannot be given together with policy; give one of them")
		case m.GetPolicy() != nil:
			q.Policy = r.policy("policy.", m.GetPolicy(), q.Policy)
		case m.GetDefaultPolicy():
			q.Policy = gq.Policy{}
		}
		setProto(m.Paused, &q.Paused)
		r.setInt("", "max_running", m.MaxRunning, &q.MaxRunning)
		r.setInt("", "max_depth", m.MaxDepth, &q.MaxDepth)
		if m.GetRate() != nil {
			q.Rate = r.rate("rate.", m.GetRate())
		}
		if m.GetKeyRate() != nil {
			q.KeyRate = r.rate("key_rate.", m.GetKeyRate())
		}
		r.setInt("", "key_limit", m.KeyLimit, &q.KeyLimit)
		setProto(m.Fair, &q.Fair)
		setProto(m.Pool, &q.Pool)
		return r.err()
	}
	trial := machine.NewQueue(m.GetName())
	if err := change(&trial); err != nil { // the faults do not depend on the queue
		return nil, err
	}
	return func(q *gq.Queue) { _ = change(q) }, nil
}

// ProtoPool encodes a pool.
func ProtoPool(p *gq.Pool) *pb.Pool {
	return &pb.Pool{Name: p.Name, Capacity: p.Capacity, Used: p.Used, UpdatedAt: protoTime(p.UpdatedAt)}
}

// PoolFromProto decodes a pool.
func PoolFromProto(m *pb.Pool) (gq.Pool, error) {
	var r protoReader
	p := gq.Pool{Name: m.GetName(), Capacity: m.GetCapacity(), Used: m.GetUsed(), UpdatedAt: r.time("", "updated_at", m.GetUpdatedAt())}
	return p, r.err()
}

// ProtoSchedule encodes a schedule with its current state.
func ProtoSchedule(s *gq.Schedule) *pb.Schedule {
	return &pb.Schedule{
		Name: s.Name, Cron: s.Cron, Every: protoDuration(s.Every), TimeZone: s.TimeZone, Start: protoTime(s.Start),
		Missed: pb.MissedRule(s.Missed), MissedLimit: int64(s.MissedLimit), Paused: s.Paused, Template: ProtoSpec(&s.Template),
		NextAt: protoTime(s.Next), LastAt: protoTime(s.Last), LastJobId: protoID(s.LastJob), Fired: int64(s.Fired),
		CreatedAt: protoTime(s.CreatedAt), UpdatedAt: protoTime(s.UpdatedAt),
		Overlap: pb.OverlapRule(s.Overlap), End: protoTime(s.End), Jitter: protoDuration(s.Jitter),
		Skipped: int64(s.Skipped), LastError: Prose(s.LastError),
	}
}

// Schedule decodes a schedule.
func (b Bases) Schedule(m *pb.Schedule) (gq.Schedule, error) {
	var r protoReader
	s := gq.Schedule{
		Name: m.GetName(), Cron: m.GetCron(), Every: r.duration("", "every", m.GetEvery()), TimeZone: m.GetTimeZone(),
		Start:  r.time("", "start", m.GetStart()),
		Missed: readEnum(&r, "", "missed", m.GetMissed(), gq.MissedAll), MissedLimit: r.int("", "missed_limit", m.GetMissedLimit()),
		Paused: m.GetPaused(),
		Next:   r.time("", "next_at", m.GetNextAt()), Last: r.time("", "last_at", m.GetLastAt()),
		LastJob: r.id("", "last_job_id", m.GetLastJobId()), Fired: r.int("", "fired", m.GetFired()),
		CreatedAt: r.time("", "created_at", m.GetCreatedAt()), UpdatedAt: r.time("", "updated_at", m.GetUpdatedAt()),
		Overlap: readEnum(&r, "", "overlap", m.GetOverlap(), gq.OverlapCancelRunning),
		End:     r.time("", "end", m.GetEnd()), Jitter: r.duration("", "jitter", m.GetJitter()),
		Skipped: r.int("", "skipped", m.GetSkipped()), LastError: m.GetLastError(),
	}
	var err error
	s.Template, err = b.Spec(m.GetTemplate())
	if err != nil && errs.KindOf(err) != gq.KindInvalid {
		return s, err
	}
	r.nested("template.", err)
	return s, r.err()
}

// ProtoCount encodes a queue's job counts.
func ProtoCount(c *gq.Count) *pb.QueueCount {
	m := &pb.QueueCount{Queue: c.Queue, ByStatus: make(map[string]int64)}
	for _, s := range enum.All[gq.Status]() {
		if n := c.By[s]; n != 0 {
			m.ByStatus[s.String()] = n
		}
	}
	return m
}

// CountFromProto decodes a queue's job counts.
func CountFromProto(m *pb.QueueCount) (gq.Count, error) {
	var r protoReader
	c := gq.Count{Queue: m.GetQueue()}
	for name, n := range m.GetByStatus() {
		s, err := enum.Parse[gq.Status](name)
		if err != nil {
			r.fault("by_status", "", "%.64q is not a state", name)
			continue
		}
		c.By[s] = n
	}
	return c, r.err()
}

// ProtoStats encodes a summary of an installation. The total is not sent.
func ProtoStats(s *gq.Stats) *pb.StatsResponse {
	m := &pb.StatsResponse{Workers: int64(s.Workers), Commits: s.Commits, Syncs: s.Syncs, DiskBytes: s.DiskBytes, DiskFree: s.DiskFree, DiskReserve: s.DiskReserve, DiskRefuses: s.DiskRefuses, Database: protoDatabase(s.Database)}
	if v := s.Server; v != nil {
		m.Server = &pb.ServerState{
			Backups: v.Backups, LastBackupAt: protoTime(v.LastBackup),
			CertificateExpiresAt: protoTime(v.CertificateExpires), CertificateProblem: Prose(v.CertificateProblem),
		}
	}
	for i := range s.Queues {
		m.Queues = append(m.Queues, ProtoCount(&s.Queues[i]))
	}
	for i := range s.Nodes {
		n := &s.Nodes[i]
		m.Nodes = append(m.Nodes, &pb.Node{
			Id: n.ID, Host: n.Host, Pid: int64(n.PID), Version: n.Version,
			StartedAt: protoTime(n.Started), LastSeenAt: protoTime(n.LastSeen), Workers: int64(n.Workers), Layout: int64(n.Layout),
		})
	}
	return m
}

// StatsFromProto decodes a summary of an installation.
func StatsFromProto(m *pb.StatsResponse) (gq.Stats, error) {
	var r protoReader
	s := gq.Stats{Workers: r.int("", "workers", m.GetWorkers()), Commits: m.GetCommits(), Syncs: m.GetSyncs(), DiskBytes: m.GetDiskBytes(), DiskFree: m.GetDiskFree(), DiskReserve: m.GetDiskReserve(), DiskRefuses: m.GetDiskRefuses()}
	s.Database = r.database("database.", m.GetDatabase())
	for _, q := range m.GetQueues() {
		c, err := CountFromProto(q)
		r.nested("queues.", err)
		s.Queues = append(s.Queues, c)
		s.Total.Add(c)
	}
	for _, n := range m.GetNodes() {
		s.Nodes = append(s.Nodes, gq.Node{
			ID: n.GetId(), Host: n.GetHost(), PID: r.int("nodes.", "pid", n.GetPid()), Version: n.GetVersion(),
			Started: r.time("nodes.", "started_at", n.GetStartedAt()), LastSeen: r.time("nodes.", "last_seen_at", n.GetLastSeenAt()),
			Workers: r.int("nodes.", "workers", n.GetWorkers()), Layout: r.int("nodes.", "layout", n.GetLayout()),
		})
	}
	if v := m.GetServer(); v != nil {
		s.Server = &gq.ServerState{
			Backups: v.GetBackups(), LastBackup: r.time("server.", "last_backup_at", v.GetLastBackupAt()),
			CertificateExpires: r.time("server.", "certificate_expires_at", v.GetCertificateExpiresAt()), CertificateProblem: v.GetCertificateProblem(),
		}
	}
	return s, r.err()
}

// ProtoCancelReport encodes the result of cancelling many jobs.
func ProtoCancelReport(c gq.CancelReport) *pb.CancelReport {
	return &pb.CancelReport{Cancelled: int64(c.Cancelled), Requested: int64(c.Requested), Finished: int64(c.Finished)}
}

// ProtoReplayReport encodes the result of replaying many jobs.
func ProtoReplayReport(r *gq.ReplayReport) *pb.ReplayReport {
	m := &pb.ReplayReport{JobIds: make([]string, len(r.Jobs)), Existing: int64(r.Existing), Refused: int64(r.Refused), Problem: Prose(r.Problem), NextCursor: r.Next}
	for i, id := range r.Jobs {
		m.JobIds[i] = id.String()
	}
	return m
}

// ReplayReportFromProto decodes the result of replaying many jobs.
func ReplayReportFromProto(m *pb.ReplayReport) (gq.ReplayReport, error) {
	r := gq.ReplayReport{Existing: int(m.GetExisting()), Refused: int(m.GetRefused()), Problem: m.GetProblem(), Next: m.GetNextCursor()}
	for _, text := range m.GetJobIds() {
		id, err := JobIDFromProto(text)
		if err != nil {
			return gq.ReplayReport{}, err
		}
		r.Jobs = append(r.Jobs, id)
	}
	return r, nil
}

// CancelReportFromProto decodes the result of cancelling many jobs.
func CancelReportFromProto(m *pb.CancelReport) gq.CancelReport {
	return gq.CancelReport{Cancelled: int(m.GetCancelled()), Requested: int(m.GetRequested()), Finished: int(m.GetFinished())}
}

// ProtoQueueKey encodes the limits of a key.
func ProtoQueueKey(k *gq.QueueKey) *pb.QueueKey {
	return &pb.QueueKey{
		Queue: k.Queue, Key: k.Key, Limit: int64(k.Limit), Rate: protoRate(k.Rate),
		FreeAt: protoTime(k.FreeAt), UpdatedAt: protoTime(k.UpdatedAt),
	}
}

// QueueKeyFromProto decodes the limits of a key.
func QueueKeyFromProto(m *pb.QueueKey) (gq.QueueKey, error) {
	var r protoReader
	k := gq.QueueKey{
		Queue: m.GetQueue(), Key: m.GetKey(), Limit: r.int("", "limit", m.GetLimit()), Rate: r.rate("rate.", m.GetRate()),
		FreeAt: r.time("", "free_at", m.GetFreeAt()), UpdatedAt: r.time("", "updated_at", m.GetUpdatedAt()),
	}
	return k, r.err()
}

// ProtoSetQueueKey encodes a request to set the limits of a key.
func ProtoSetQueueKey(k *gq.QueueKey) *pb.SetQueueKeyRequest {
	return &pb.SetQueueKeyRequest{Queue: k.Queue, Key: k.Key, Limit: int64(k.Limit), Rate: protoRate(k.Rate)}
}
