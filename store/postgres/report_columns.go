package postgres

import (
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// reportColumn is a column of gq.report or gq.report_event. Exactly one of number, text
// and flag is set. Rows are sent as one array for each column, which the server reads
// several times faster than JSON.
type reportColumn[T any] struct {
	name   string
	number func(*T) int64
	text   func(*T) string
	flag   func(*T) bool
	null   bool   // a zero value is NULL
	same   bool   // most transactions write one value to all rows
	as     string // what is written, with the value for %s; "" for the value itself
}

func (c *reportColumn[T]) expression() string {
	value := "n." + c.name
	if c.null && c.text != nil {
		value = "nullif(" + value + ", '')"
	} else if c.null {
		value = "nullif(" + value + ", 0)"
	}
	if c.as != "" {
		return fmt.Sprintf(c.as, value)
	}
	return value
}

// reportColumns are the columns that a statement writes.
type reportColumns[T any] []reportColumn[T]

// names lists the columns, and expressions what is written to them from n.
func (cs reportColumns[T]) names() string {
	all := make([]string, len(cs))
	for i := range cs {
		all[i] = cs[i].name
	}
	return strings.Join(all, ", ")
}

func (cs reportColumns[T]) expressions() string {
	all := make([]string, len(cs))
	for i := range cs {
		all[i] = cs[i].expression()
	}
	return strings.Join(all, ", ")
}

// from is the subquery n with the rows that arguments makes parameters of.
func (cs reportColumns[T]) from(alike bool) string {
	all := make([]string, len(cs))
	for i, c := range cs {
		kind := "bigint"
		if c.text != nil {
			kind = "text"
		} else if c.flag != nil {
			kind = "boolean"
		}
		value := "unnest($%d::%s[]) AS %s"
		if alike && c.same {
			value = "$%d::%s AS %s"
		}
		all[i] = fmt.Sprintf(value, i+1, kind, c.name)
	}
	return "(SELECT " + strings.Join(all, ", ") + ") AS n"
}

// alike reports whether rows have equal values in the columns marked as same.
func (cs reportColumns[T]) alike(rows []*T) bool {
	for _, c := range cs {
		if !c.same {
			continue
		}
		for _, r := range rows[1:] {
			switch {
			case c.number != nil && c.number(r) != c.number(rows[0]),
				c.text != nil && c.text(r) != c.text(rows[0]),
				c.flag != nil && c.flag(r) != c.flag(rows[0]):
				return false
			}
		}
	}
	return true
}

// arguments returns an array for each column, or one value for the columns marked as same
// if the rows are alike.
func (cs reportColumns[T]) arguments(rows []*T, alike bool) []any {
	args := make([]any, len(cs))
	for i, c := range cs {
		switch {
		case alike && c.same && c.number != nil:
			args[i] = c.number(rows[0])
		case alike && c.same && c.text != nil:
			args[i] = c.text(rows[0])
		case alike && c.same:
			args[i] = c.flag(rows[0])
		case c.number != nil:
			args[i] = mapped(rows, c.number)
		case c.text != nil:
			args[i] = mapped(rows, c.text)
		default:
			args[i] = mapped(rows, c.flag)
		}
	}
	return args
}

// reportStatement writes rows from arrays. alike is for rows that are alike: a value that is
// sent once costs less than an array of equal ones.
type reportStatement[T any] struct {
	columns      reportColumns[T]
	mixed, alike string
}

// statementFor makes both forms of a statement, which has %s for the rows.
func (cs reportColumns[T]) statementFor(sql string) reportStatement[T] {
	return reportStatement[T]{cs, fmt.Sprintf(sql, cs.from(false)), fmt.Sprintf(sql, cs.from(true))}
}

func (s *reportStatement[T]) write(batch *pgx.Batch, rows []*T) {
	if len(rows) == 0 {
		return
	}
	alike, sql := s.columns.alike(rows), s.mixed
	if alike {
		sql = s.alike
	}
	batch.Queue(sql, s.columns.arguments(rows, alike)...)
}

func mapped[T, V any](rows []*T, value func(*T) V) []V {
	out := make([]V, len(rows))
	for i, r := range rows {
		out[i] = value(r)
	}
	return out
}

var (
	reportSeq = reportColumn[reportJob]{name: "seq", number: func(r *reportJob) int64 { return r.Seq }}

	specColumns = reportColumns[reportJob]{
		{name: "id", text: func(r *reportJob) string { return r.ID }, as: "%s::uuid"},
		{name: "queue", text: func(r *reportJob) string { return r.Queue }},
		{name: "type", text: func(r *reportJob) string { return r.Type }},
		{name: "cost", number: func(r *reportJob) int64 { return r.Cost }},
		{name: "requester", text: func(r *reportJob) string { return r.Requester }},
		{name: "tier", text: func(r *reportJob) string { return r.Tier }},
		{name: "max_fee", number: func(r *reportJob) int64 { return r.MaxFee }},
		{name: "asks", null: true, text: func(r *reportJob) string { return r.Asks }, as: "gq.read_asks(%s)"},
	}

	// stateColumns change with the state of a job.
	stateColumns = reportColumns[reportJob]{
		{name: "status", same: true, number: func(r *reportJob) int64 { return int64(r.Status) }},
		{name: "held", same: true, flag: func(r *reportJob) bool { return r.Held }},
		{name: "scheduler_state", same: true, text: func(r *reportJob) string { return r.SchedulerState }},
		{name: "matching_state", same: true, text: func(r *reportJob) string { return r.MatchingState }},
		{name: "priority", text: func(r *reportJob) string { return r.Priority }},
		{name: "attempts", same: true, number: func(r *reportJob) int64 { return int64(r.Attempts) }},
		{name: "faults", same: true, number: func(r *reportJob) int64 { return int64(r.Faults) }},
		{name: "created", number: func(r *reportJob) int64 { return r.Created }},
		{name: "started", same: true, null: true, number: func(r *reportJob) int64 { return r.Started }},
		{name: "first_started", same: true, null: true, number: func(r *reportJob) int64 { return r.FirstStarted }},
		{name: "completed", same: true, null: true, number: func(r *reportJob) int64 { return r.Completed }},
		{name: "failure", same: true, null: true, text: func(r *reportJob) string { return r.Failure }},
		{name: "failure_code", same: true, null: true, text: func(r *reportJob) string { return r.FailureCode }},
		{name: "reason", same: true, null: true, text: func(r *reportJob) string { return r.Reason }},
		{name: "lifetime", same: true, number: func(r *reportJob) int64 { return r.Lifetime }},
		{name: "run_lifetime", same: true, number: func(r *reportJob) int64 { return r.RunLifetime }},
		{name: "policy_ttl", same: true, number: func(r *reportJob) int64 { return r.LeaseTTL }},
		{name: "renew_before", same: true, number: func(r *reportJob) int64 { return r.RenewBefore }},
		{name: "claimed_by", null: true, text: func(r *reportJob) string { return r.ClaimedBy }},
		{name: "last_run", null: true, text: func(r *reportJob) string { return r.LastRun }},
		{name: "lease", null: true, text: func(r *reportJob) string { return r.Lease }},
		{name: "lease_state", same: true, null: true, text: func(r *reportJob) string { return r.LeaseState }},
		{name: "worker", null: true, text: func(r *reportJob) string { return r.Worker }},
		{name: "granted", null: true, number: func(r *reportJob) int64 { return r.Granted }},
		{name: "beat", null: true, number: func(r *reportJob) int64 { return r.Beat }},
		{name: "expires", null: true, number: func(r *reportJob) int64 { return r.Expires }},
		{name: "ttl", null: true, number: func(r *reportJob) int64 { return r.TTL }},
		{name: "lease_cost", number: func(r *reportJob) int64 { return r.LeaseCost }},
	}

	eventColumns = reportColumns[reportEvent]{
		{name: "segment", same: true, number: func(e *reportEvent) int64 { return e.Segment }},
		{name: "place", number: func(e *reportEvent) int64 { return int64(e.Place) }},
		{name: "job", text: func(e *reportEvent) string { return e.Job }, as: "%s::uuid"},
		{name: "queue", text: func(e *reportEvent) string { return e.Queue }},
		{name: "type", text: func(e *reportEvent) string { return e.Type }},
		{name: "final", same: true, flag: func(e *reportEvent) bool { return e.Final }},
		{name: "scheduler_state", text: func(e *reportEvent) string { return e.SchedulerState }},
		{name: "attempt", number: func(e *reportEvent) int64 { return int64(e.Attempt) }},
		{name: "lease", text: func(e *reportEvent) string { return e.Lease }},
		{name: "lease_state", null: true, text: func(e *reportEvent) string { return e.LeaseState }},
		{name: "lease_end", same: true, null: true, text: func(e *reportEvent) string { return e.LeaseEnd }},
		{name: "ends_run", same: true, flag: func(e *reportEvent) bool { return e.EndsRun }},
		{name: "fault", same: true, flag: func(e *reportEvent) bool { return e.Fault }},
		{name: "worker", text: func(e *reportEvent) string { return e.Worker }},
		{name: "until", null: true, number: func(e *reportEvent) int64 { return e.Until }},
		{name: "cost", number: func(e *reportEvent) int64 { return e.Cost }},
		{name: "beat", same: true, null: true, number: func(e *reportEvent) int64 { return e.Beat }},
		{name: "message", same: true, null: true, text: func(e *reportEvent) string { return e.Message }},
		{name: "reason", same: true, null: true, text: func(e *reportEvent) string { return e.Reason }},
		{name: "submitted", same: true, null: true, text: func(e *reportEvent) string { return e.Submitted }, as: "%s::jsonb"},
	}
)
