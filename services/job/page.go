package job

import (
	"math"
	"strconv"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	publicpb "github.com/gopherqueue/gq/api/taskqueue/v1"
	internalpb "github.com/gopherqueue/gq/services/api/taskqueueinternal/v1"
)

const (
	defaultPageSize = 50
	maxPageSize     = 200
)

// page is a checked request for a list.
type page struct {
	wanted    [publicpb.JobStatus_CANCELED + 1]bool
	offset    int
	size      int
	ascending bool
}

func parsePage(r *internalpb.ListJobRecordsRequest) (p page, err error) {
	for _, s := range r.GetStatusFilter() {
		if !known(s) {
			return p, status.Errorf(codes.InvalidArgument, "status_filter: %v is not a status", s)
		}
		p.wanted[s] = true
	}
	if len(r.GetStatusFilter()) == 0 {
		for s := range p.wanted {
			p.wanted[s] = true
		}
	}
	switch r.GetSort() {
	case publicpb.JobSort_JOB_SORT_UNSPECIFIED, publicpb.JobSort_CREATED_AT_DESC:
	case publicpb.JobSort_CREATED_AT_ASC:
		p.ascending = true
	default:
		return p, status.Errorf(codes.InvalidArgument, "sort: %v is not an order", r.GetSort())
	}
	p.size = defaultPageSize
	if n := r.GetPage().GetPageSize(); n > 0 {
		p.size = int(min(n, maxPageSize))
	}
	p.offset, err = parseToken(r.GetPage().GetPageToken())
	return p, err
}

// parseToken reads an offset: decimal digits and nothing else. An offset that is out of
// range counts as the largest.
func parseToken(token string) (int, error) {
	if token == "" {
		return 0, nil
	}
	for _, c := range []byte(token) {
		if c < '0' || c > '9' {
			return 0, status.Errorf(codes.InvalidArgument, "page_token: %.32q is not an offset", token)
		}
	}
	n, err := strconv.Atoi(token)
	if err != nil { // it can only be out of range
		return math.MaxInt, nil //nolint:nilerr // past the end of every list
	}
	return n, nil
}
