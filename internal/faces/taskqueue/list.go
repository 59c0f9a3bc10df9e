package taskqueue

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/gopherqueue/gq"
	publicpb "github.com/gopherqueue/gq/api/taskqueue/v1"
	"github.com/gopherqueue/gq/internal/enum"
	"github.com/gopherqueue/gq/internal/projection"
)

const (
	defaultPageSize = 50
	maxPageSize     = 200
	readPageSize    = 1000 // most jobs in one read of the store
)

// ListJobs returns a page of jobs. As the service definition requires, its token is an
// offset, so later pages cost more: everything before them is read too.
func (s *Service) ListJobs(ctx context.Context, r *publicpb.ListJobsRequest) (*publicpb.ListJobsResponse, error) {
	p, err := parsePage(r)
	if err != nil {
		return nil, err
	}
	answer := &publicpb.ListJobsResponse{Page: &publicpb.PageResponse{}}
	skipped := 0
	err = s.walk(ctx, p, func(j *gq.Job) bool {
		switch {
		case skipped < p.offset:
			skipped++
		case len(answer.GetJobs()) == p.size:
			answer.Page.NextPageToken = strconv.Itoa(p.offset + p.size)
			return false
		default:
			answer.Jobs = append(answer.Jobs, summary(j))
		}
		return true
	})
	if err != nil {
		return nil, err
	}
	return answer, nil
}

// skew is how far submission order and creation times can differ when several servers
// write to one store.
const skew = time.Second

// walk yields the matching jobs in order of creation until yield returns false. The store
// lists them in order of submission, so walk holds each job back until no earlier one can
// follow.
func (s *Service) walk(ctx context.Context, p page, yield func(*gq.Job) bool) error {
	q := gq.Query{Queue: Queue, Statuses: p.statuses(), OldestFirst: p.ascending, Limit: readPageSize}
	if p.offset < readPageSize {
		q.Limit = min(p.offset+p.size+1, readPageSize)
	}
	place := func(j *gq.Job) int64 { // sort key, ascending
		if p.ascending {
			return j.State.CreatedAt.UnixMilli()
		}
		return -j.State.CreatedAt.UnixMilli()
	}
	var kept []*gq.Job
	furthest := int64(math.MinInt64)
	for more := true; more; {
		read, err := s.engine.List(ctx, q)
		if err != nil {
			return err
		}
		for i := range read.Jobs {
			j := &read.Jobs[i]
			furthest = max(furthest, place(j))
			if p.wanted[statusOf(&j.State)] {
				kept = append(kept, j)
			}
		}
		more = read.Next != ""
		q.Cursor, q.Limit = read.Next, readPageSize
		slices.SortFunc(kept, func(a, b *gq.Job) int {
			return cmp.Or(cmp.Compare(place(a), place(b)), slices.Compare(a.State.ID[:], b.State.ID[:]))
		})
		n := 0
		for ; n < len(kept) && (!more || place(kept[n]) < furthest-skew.Milliseconds()); n++ {
			if !yield(kept[n]) {
				return nil
			}
		}
		kept = slices.Delete(kept, 0, n)
	}
	return nil
}

// page is a validated list request.
type page struct {
	wanted    [publicpb.JobStatus_CANCELED + 1]bool
	all       bool
	offset    int
	size      int
	ascending bool
}

func parsePage(r *publicpb.ListJobsRequest) (p page, err error) {
	for _, s := range r.GetStatusFilter() {
		if s < publicpb.JobStatus_QUEUED || s > publicpb.JobStatus_CANCELED {
			return p, invalid("status_filter", fmt.Sprintf("%v is not a status", s))
		}
		p.wanted[s] = true
	}
	if len(r.GetStatusFilter()) == 0 {
		p.all = true
		for s := range p.wanted {
			p.wanted[s] = true
		}
	}
	switch r.GetSort() {
	case publicpb.JobSort_JOB_SORT_UNSPECIFIED, publicpb.JobSort_CREATED_AT_DESC:
	case publicpb.JobSort_CREATED_AT_ASC:
		p.ascending = true
	default:
		return p, invalid("sort", fmt.Sprintf("%v is not an order", r.GetSort()))
	}
	p.size = int(min(cmp.Or(r.GetPage().GetPageSize(), defaultPageSize), maxPageSize))
	p.offset, err = parseToken(r.GetPage().GetPageToken())
	return p, err
}

// parseToken parses an offset: decimal digits only. An offset too large for an int
// becomes the largest int.
func parseToken(token string) (int, error) {
	if token == "" {
		return 0, nil
	}
	for _, c := range []byte(token) {
		if c < '0' || c > '9' {
			return 0, invalid("page_token", fmt.Sprintf("%.32q is not an offset", token))
		}
	}
	n, err := strconv.Atoi(token)
	if err != nil { // only a range error is left
		return math.MaxInt, nil //nolint:nilerr // past the end of every list
	}
	return n, nil
}

// statuses returns the store statuses that a matching job can have; empty means any. A
// store status can belong to two statuses of the service, depending on whether the job
// has started.
func (p *page) statuses() (all []gq.Status) {
	if p.all {
		return nil
	}
	for _, s := range enum.All[gq.Status]() {
		if p.wanted[statusNamed(projection.View{Status: s})] || p.wanted[statusNamed(projection.View{Status: s, Attempt: 1})] {
			all = append(all, s)
		}
	}
	return all
}
