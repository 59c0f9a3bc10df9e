package postgres

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/match"
)

// The index from which rounds of matching take jobs is on the score of a job without its age
// (match.Priority.Cached), which depends on the policy. The weights are constants of the indexed
// expression, so nothing has to be written with a job, the database keeps the index true whichever
// program writes, and a query under other weights cannot read it by mistake. A policy with other
// weights makes the index anew.

const (
	// jobIndexAgain is how long a store waits before it tries again to make the index.
	jobIndexAgain = time.Minute

	// jobIndexKept is how long a store leaves the index alone after it has made one for the same
	// weights, or has given up because that took too long. So servers that are configured with
	// different policies do not make it in turns.
	jobIndexKept = time.Hour

	// jobIndexBuild is how long the statement that makes the index may take. Writers wait meanwhile,
	// so a longer one would let leases expire.
	jobIndexBuild = time.Second

	// jobIndexWithin is how long all that comes before and after that statement may take.
	jobIndexWithin = 5 * time.Second

	// jobIndexSlow is how long a list may take. If it takes longer, the store does not list for
	// jobIndexRest times as long: an old snapshot keeps the entries of the jobs that were taken since,
	// and these come first.
	jobIndexSlow = time.Second
	jobIndexRest = 20
)

// jobOrder is the order in which rounds take jobs under a policy.
type jobOrder struct {
	score string // expression on gq.report
	mark  string // the comment of its index
}

func orderOfJobs(p *match.Priority) jobOrder {
	tier := "0"
	if named := tierWeights(p); named != "" {
		tier = "CASE coalesce(nullif(tier, ''), '" + match.FreeTier + "')" + named + " ELSE 0 END"
	}
	o := jobOrder{score: fmt.Sprintf(
		`%d::bigint * least(max_fee, %d) / %d + %d::bigint / (%d + coalesce((asks ->> 'size_bytes')::bigint, 0)) + %s - %d::bigint * (created / 1000000000) / CASE type WHEN 'AI' THEN %d ELSE %d END`,
		p.FeeWeight, p.FeeRef, p.FeeRef, p.SizeWeight*p.SizeRef, p.SizeRef, tier, p.AgeWeight, p.AgeRefAI, p.AgeRefQuantum)}
	sum := sha256.Sum256([]byte(o.index()))
	o.mark = "The jobs that wait in the order of rounds, for the weights " + hex.EncodeToString(sum[:8])
	return o
}

// tierWeights are the branches of a CASE. A name is written as bytes, so that it can contain neither
// a quote nor what looks like the name of a schema.
func tierWeights(p *match.Priority) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(p.Tiers)) {
		if printable(name) != name {
			continue // no row of the table has it
		}
		b.WriteString(" WHEN E'")
		for _, c := range []byte(name) {
			fmt.Fprintf(&b, `\x%02x`, c)
		}
		fmt.Fprintf(&b, "' THEN %d", p.TierWeight*p.Tiers[name]/1_000_000_000)
	}
	return b.String()
}

// jobsWaiting is what the index has, and its condition.
const jobsWaiting = "queue = '" + matchingQueue + "' AND matching_state = 'QUEUED'"

func (o jobOrder) index() string {
	return "CREATE INDEX report_job_index ON gq.report (type, matching_state, (" + o.score + ") DESC, (created / 1000000000), id) WHERE " + jobsWaiting
}

// first selects the ids of the first n jobs of each kind. Each part reads the index in order, of
// every partition, and stops after n rows.
func (o jobOrder) first(n int) string {
	var parts []string
	for _, k := range match.Kinds() {
		parts = append(parts, fmt.Sprintf(
			"(SELECT id FROM gq.report WHERE type = '%s' AND %s ORDER BY (%s) DESC, created / 1000000000, id LIMIT %d)", k, jobsWaiting, o.score, n))
	}
	return strings.Join(parts, " UNION ALL ")
}

// WaitingJobs returns the first n jobs of each kind that wait in the queue of matching, in the order
// in which rounds take them under a policy. Some of them may not be due yet. It reads them by an
// index, which it makes first if it has to. ok is false if there is no index for this policy (see
// [Store.makeJobIndex]), or if it is slow at present.
func (s *Store) WaitingJobs(ctx context.Context, p *match.Priority, n int) (ids []gq.JobID, ok bool, err error) {
	order, began := orderOfJobs(p), time.Now()
	if began.UnixNano() < s.jobIndex.rests.Load() {
		return nil, false, nil
	}
	ids, ok, err = s.listWaiting(ctx, order, n)
	if took := time.Since(began); took > cmp.Or(s.jobIndex.slow, jobIndexSlow) {
		s.jobIndex.rests.Store(began.Add(jobIndexRest * took).UnixNano())
	}
	if err != nil || ok {
		return ids, ok, err
	}
	if made, err := s.makeJobIndex(ctx, order); err != nil || !made {
		return nil, false, err
	}
	return s.listWaiting(ctx, order, n)
}

func (s *Store) listWaiting(ctx context.Context, o jobOrder, n int) (ids []gq.JobID, ok bool, err error) {
	err = s.readOnce(ctx, func(tx *txn) error {
		ids, ok = nil, false
		var mark string
		if err := tx.QueryRow(ctx, jobIndexMark).Scan(&mark); err != nil || mark != o.mark {
			return err
		}
		found, err := collect[[16]byte](tx.Query(ctx, o.first(n)))
		for _, id := range found {
			ids = append(ids, id)
		}
		ok = err == nil
		return err
	})
	return ids, ok, err
}

// jobIndexMark selects the comment of the index, which is empty if there is no index.
const jobIndexMark = "SELECT coalesce(obj_description(to_regclass('gq.report_job_index'), 'pg_class'), '')"

// jobIndex is what a store knows about the index that it makes.
type jobIndex struct {
	mu    sync.Mutex
	mark  string        // of the last try
	tried time.Time     // when that began
	pause time.Duration // from then until the next one for the same weights

	build time.Duration // 0 is jobIndexBuild
	slow  time.Duration // 0 is jobIndexSlow
	rests atomic.Int64  // until when no list is read
}

// LimitJobIndex sets how long making the index of waiting jobs and reading it may take, by default a
// second each. Tests that expect rounds to read the index raise both, before the first round.
func (s *Store) LimitJobIndex(build, list time.Duration) {
	s.jobIndex.build, s.jobIndex.slow = build, list
}

// makeJobIndex makes the index, and reports whether it did. It leaves the index alone if it has tried
// a moment ago, or has made this one and another server has replaced it since. While the index is made,
// nobody can write to the table, nor read it if another index is replaced. If others use the table, or
// the index takes too long, it gives up and the database is as before. It does not stop when the
// request ends that it happens to serve: the next one would only begin anew.
func (s *Store) makeJobIndex(ctx context.Context, o jobOrder) (made bool, err error) {
	x := &s.jobIndex
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.mark == o.mark && time.Since(x.tried) < x.pause {
		return false, nil
	}
	x.mark, x.tried, x.pause = o.mark, time.Now(), jobIndexAgain
	if err := s.enter(); err != nil {
		return false, err
	}
	defer s.leave()
	build := cmp.Or(x.build, jobIndexBuild)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), build+jobIndexWithin)
	defer cancel()
	begin := fmt.Sprintf("%s%s; SET LOCAL statement_timeout = %d", s.begins.write, maintainWait, build.Milliseconds())
	err = s.transact(ctx, begin, func(tx *txn) error {
		if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1, 0)", lockPartition); err != nil {
			return err
		}
		var mark string
		if err := tx.QueryRow(ctx, jobIndexMark).Scan(&mark); err != nil || mark == o.mark {
			return err // another server has made it
		}
		tx.written = true
		if mark != "" {
			if _, err := tx.Exec(ctx, "LOCK TABLE gq.report; DROP INDEX gq.report_job_index"); err != nil {
				return err
			}
		}
		_, err := tx.Exec(ctx, o.index()+"; COMMENT ON INDEX gq.report_job_index IS '"+o.mark+"'")
		return err
	})
	switch {
	case held(err):
		return false, nil
	case overtime(err):
		x.pause = jobIndexKept
		return false, nil
	case err != nil:
		return false, fmt.Errorf("make the index of waiting jobs: %w", err)
	}
	x.pause = jobIndexKept
	return true, nil
}
