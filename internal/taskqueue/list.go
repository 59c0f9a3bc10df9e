package taskqueue

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/gopherqueue/gq"
	publicpb "github.com/gopherqueue/gq/api/taskqueue/v1"
)

const (
	defaultPageSize = 50
	maxPageSize     = 200
	readPageSize    = 1000 // jobs that one read of the store takes at most
)

// ListJobs reads a page of jobs. Its token is an offset, as frozen, so what lies
// before the page is read too: a page costs more the later it is.
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

// walk yields the wanted jobs in their order until yield has enough. The store
// has them by submission; those of one millisecond are put in order by id.
func (s *Service) walk(ctx context.Context, p page, yield func(*gq.Job) bool) error {
	q := gq.Query{Queue: Queue, Statuses: p.statuses(), OldestFirst: p.ascending, Limit: readPageSize}
	if p.offset < readPageSize {
		q.Limit = min(p.offset+p.size+1, readPageSize)
	}
	var group []gq.Job // created in the same millisecond
	flush := func() bool {
		slices.SortFunc(group, func(a, b gq.Job) int { return slices.Compare(a.State.ID[:], b.State.ID[:]) })
		for i := range group {
			if !yield(&group[i]) {
				return false
			}
		}
		group = group[:0]
		return true
	}
	for {
		read, err := s.engine.List(ctx, q)
		if err != nil {
			return err
		}
		for i := range read.Jobs {
			j := &read.Jobs[i]
			if !p.wanted[statusOf(&j.State)] {
				continue
			}
			if len(group) > 0 && group[0].State.CreatedAt.UnixMilli() != j.State.CreatedAt.UnixMilli() && !flush() {
				return nil
			}
			group = append(group, *j)
		}
		if read.Next == "" {
			flush()
			return nil
		}
		q.Cursor = read.Next
	}
}

// page is a checked request for a list.
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
			return p, invalid("status_filter", fmt.Sprintf("%v is no status", s))
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
		return p, invalid("sort", fmt.Sprintf("%v is no order", r.GetSort()))
	}
	p.size = int(min(cmp.Or(r.GetPage().GetPageSize(), defaultPageSize), maxPageSize))
	p.offset, err = parseToken(r.GetPage().GetPageToken())
	return p, err
}

// parseToken reads an offset: decimal digits and nothing else. One that is
// larger than any list counts as the largest.
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
	if err != nil { // only the range is left to be wrong
		return math.MaxInt, nil //nolint:nilerr // past the end of every list
	}
	return n, nil
}

// statuses are those that a wanted job may have in the store; none is any. Some
// of them belong to two statuses of the service, by whether the job has started.
func (p *page) statuses() (all []gq.Status) {
	if p.all {
		return nil
	}
	for _, s := range gq.Statuses() {
		if p.wanted[statusNamed(gq.View{Status: s})] || p.wanted[statusNamed(gq.View{Status: s, Attempt: 1})] {
			all = append(all, s)
		}
	}
	return all
}
