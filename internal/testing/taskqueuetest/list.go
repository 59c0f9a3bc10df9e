package taskqueuetest

import (
	"cmp"
	"slices"
	"strconv"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	publicpb "github.com/gopherqueue/gq/api/taskqueue/v1"
)

var listCases = []testCase{
	{
		name: "List/Pages", clause: "pages have 50 jobs unless asked for others, 200 at most, and tokens are offsets",
		Covers: []string{"T-38", "T-109", "T-136", "T-137", "T-164", "T-195", "T-256", "T-260"},
		run:    listPages,
	},
	{
		name: "List/Order", clause: "jobs are ordered by creation, newest first unless asked for otherwise, and by id within a millisecond",
		Covers: []string{"T-131", "T-160", "T-162", "T-260"},
		run:    listOrder,
	},
	{
		name: "List/Filter", clause: "only the wanted statuses are listed; none wanted means all",
		Covers: []string{"T-38", "T-134", "T-135", "T-161", "T-163", "T-261"},
		run:    listFilter,
	},
	{
		name: "List/Repeat", clause: "a list of jobs at rest can be repeated",
		Covers: []string{"T-225"},
		run:    listRepeat,
	},
	{
		name: "List/Invalid", clause: "what is no token, status or order is INVALID_ARGUMENT",
		Covers: []string{"T-196", "T-210"},
		run:    listInvalid,
	},
}

func (s *system) list(t *testing.T, r *publicpb.ListJobsRequest) *publicpb.ListJobsResponse {
	t.Helper()
	answer, err := s.first().ListJobs(t.Context(), r)
	if err != nil {
		t.Fatalf("list %v: %v", r, err)
	}
	return answer
}

// all reads every page.
func (s *system) all(t *testing.T, sort publicpb.JobSort, filter ...publicpb.JobStatus) (jobs []*publicpb.JobSummary) {
	t.Helper()
	token := ""
	for {
		answer := s.list(t, &publicpb.ListJobsRequest{StatusFilter: filter, Sort: sort, Page: &publicpb.PageRequest{PageSize: 200, PageToken: token}})
		jobs = append(jobs, answer.GetJobs()...)
		token = answer.GetPage().GetNextPageToken()
		if token == "" {
			return jobs
		}
		if token != strconv.Itoa(len(jobs)) {
			t.Fatalf("token %q after %d jobs", token, len(jobs))
		}
	}
}

func listPages(t *testing.T, s *system) {
	for _, id := range s.submitMany(t, 250, func(int) publicpb.TaskQueuePublicServiceClient { return s.first() }) {
		s.until(t, id, ended)
	}
	for asked, want := range map[uint32]int{0: 50, 1: 1, 50: 50, 200: 200, 201: 200, 5000: 200} {
		answer := s.list(t, &publicpb.ListJobsRequest{Page: &publicpb.PageRequest{PageSize: asked}})
		if len(answer.GetJobs()) != want || answer.GetPage().GetNextPageToken() != strconv.Itoa(want) {
			t.Errorf("page of %d: %d jobs, token %q", asked, len(answer.GetJobs()), answer.GetPage().GetNextPageToken())
		}
	}
	whole := s.list(t, &publicpb.ListJobsRequest{Sort: publicpb.JobSort_CREATED_AT_ASC, Page: &publicpb.PageRequest{PageSize: 10}})
	rest := s.list(t, &publicpb.ListJobsRequest{Sort: publicpb.JobSort_CREATED_AT_ASC, Page: &publicpb.PageRequest{PageSize: 8, PageToken: "2"}})
	for i, j := range rest.GetJobs() {
		if j.GetJobId() != whole.GetJobs()[i+2].GetJobId() {
			t.Fatalf("token 2 does not skip two jobs")
		}
	}
	submit(t, s.first(), work(0, 0), "") // pages are not a snapshot
	for _, token := range []string{"1000000", "99999999999999999999"} {
		end := s.list(t, &publicpb.ListJobsRequest{Page: &publicpb.PageRequest{PageToken: token}})
		if len(end.GetJobs()) != 0 || end.GetPage().GetNextPageToken() != "" {
			t.Errorf("past the end: %v", end)
		}
	}
}

func listOrder(t *testing.T, s *system) {
	s.submitMany(t, 50, func(int) publicpb.TaskQueuePublicServiceClient { return s.first() })
	for sort, sign := range map[publicpb.JobSort]int64{
		publicpb.JobSort_JOB_SORT_UNSPECIFIED: -1, publicpb.JobSort_CREATED_AT_DESC: -1, publicpb.JobSort_CREATED_AT_ASC: 1,
	} {
		jobs := s.all(t, sort)
		sorted := slices.IsSortedFunc(jobs, func(a, b *publicpb.JobSummary) int {
			return cmp.Or(cmp.Compare(sign*a.GetCreatedAtMs(), sign*b.GetCreatedAtMs()), cmp.Compare(a.GetJobId(), b.GetJobId()))
		})
		if !sorted {
			t.Errorf("%v: not sorted", sort)
		}
	}
}

func listFilter(t *testing.T, s *system) {
	done := submit(t, s.first(), work(0, 0), "").GetJobId()
	failed := submit(t, s.first(), work(0, 1<<20), "").GetJobId()
	s.until(t, done, ended)
	s.until(t, failed, ended)
	s.occupy(t)
	canceled := submit(t, s.first(), work(0, 0), "").GetJobId()
	s.cancel(t, canceled, "")
	queued := submit(t, s.first(), work(0, 0), "").GetJobId()
	defer s.cancel(t, queued, "")

	everything := s.all(t, publicpb.JobSort_CREATED_AT_DESC)
	for id, want := range map[string]publicpb.JobStatus{
		done: publicpb.JobStatus_DONE, failed: publicpb.JobStatus_FAILED, canceled: publicpb.JobStatus_CANCELED, queued: publicpb.JobStatus_QUEUED,
	} {
		named := func(j *publicpb.JobSummary) bool { return j.GetJobId() == id }
		if i := slices.IndexFunc(everything, named); i < 0 || everything[i].GetStatus() != want || everything[i].GetJobType() != "contract" ||
			(everything[i].GetFinishedAtMs() > 0) != (want != publicpb.JobStatus_QUEUED) || everything[i].GetCancelRequested() != (want == publicpb.JobStatus_CANCELED) {
			t.Errorf("%v job in the list of all: %v", want, i)
		}
		filtered := s.all(t, publicpb.JobSort_CREATED_AT_DESC, want)
		if !slices.ContainsFunc(filtered, named) || slices.ContainsFunc(filtered, func(j *publicpb.JobSummary) bool { return j.GetStatus() != want }) {
			t.Errorf("filter %v does not fit", want)
		}
	}
	if !slices.ContainsFunc(everything, func(j *publicpb.JobSummary) bool {
		return j.GetStatus() == publicpb.JobStatus_RUNNING && j.GetStartedAtMs() > 0 && j.GetFinishedAtMs() == 0
	}) {
		t.Error("no running job in the list of all")
	}
	two := s.all(t, publicpb.JobSort_CREATED_AT_DESC, publicpb.JobStatus_DONE, publicpb.JobStatus_FAILED)
	if len(two) != len(s.all(t, 0, publicpb.JobStatus_DONE))+len(s.all(t, 0, publicpb.JobStatus_FAILED)) {
		t.Error("two wanted statuses are not the sum of both")
	}
}

func listRepeat(t *testing.T, s *system) {
	for _, j := range s.all(t, 0, publicpb.JobStatus_QUEUED, publicpb.JobStatus_RUNNING) {
		s.until(t, j.GetJobId(), ended)
	}
	r := &publicpb.ListJobsRequest{StatusFilter: []publicpb.JobStatus{publicpb.JobStatus_DONE}, Page: &publicpb.PageRequest{PageSize: 100, PageToken: "3"}}
	if first, second := s.list(t, r), s.list(t, r); !proto.Equal(first, second) {
		t.Error("the same list twice differs")
	}
}

func listInvalid(t *testing.T, s *system) {
	for _, token := range []string{"abc", "-1", "1.5", "+1", " 1", "0x10", "1e3"} {
		_, err := s.first().ListJobs(t.Context(), &publicpb.ListJobsRequest{Page: &publicpb.PageRequest{PageToken: token}})
		wantCode(t, "token "+token, err, codes.InvalidArgument)
	}
	for _, filter := range []publicpb.JobStatus{0, 6, -1} {
		_, err := s.first().ListJobs(t.Context(), &publicpb.ListJobsRequest{StatusFilter: []publicpb.JobStatus{publicpb.JobStatus_DONE, filter}})
		wantCode(t, "filter", err, codes.InvalidArgument)
	}
	_, err := s.first().ListJobs(t.Context(), &publicpb.ListJobsRequest{Sort: 3})
	wantCode(t, "sort", err, codes.InvalidArgument)
}
