package scheduler

import (
	"net/http"
	"reflect"
)

func tellLeaseList(f *fixture) {
	f.do(http.MethodPut, "/admin/capacity", object{"total": 1000}, http.StatusOK)
	want := map[string]bool{}
	ended := ""
	for i := range 5 {
		addon := "visuals"
		if i == 4 {
			addon = "audio"
		}
		job, lease := f.running("addon_id", addon)
		if i == 0 {
			f.release(job, lease, "SUCCEEDED")
			ended = lease
			continue
		}
		want[lease] = true
	}
	id(f.submit())
	f.claim() // a claim is no lease
	got := map[string]bool{}
	for _, path := range []string{"/lease?limit=2", "/lease?addon_id=audio", "/lease"} {
		for _, l := range f.list(path, "leases") {
			f.hasKeys("a lease", l, leaseKeys...)
			leaseID, _ := l["lease_id"].(string)
			if l["state"] != "ACTIVE" || leaseID == ended || path == "/lease?addon_id=audio" && l["addon_id"] != "audio" {
				f.Errorf("%s lists %v", path, l)
			}
			if path == "/lease?limit=2" {
				got[leaseID] = true
			}
		}
	}
	if !reflect.DeepEqual(got, want) {
		f.Errorf("leases %v, want %v", got, want)
	}
	for _, query := range []string{"?limit=0", "?limit=201", "?state=ACTIVE", "?addon_id=matching"} {
		f.refused(http.MethodGet, "/lease"+query, nil, http.StatusBadRequest, CodeInvalidRequest)
	}
	f.refused(http.MethodGet, "/lease?cursor=x", nil, http.StatusBadRequest, CodeInvalidCursor)
}

func tellLeaseCancel(f *fixture) {
	job, lease := f.running()
	f.used(30)
	got := f.post("/lease/"+lease+"/cancel", object{"reason": "maintenance"})
	if l := member(got, "lease"); l["state"] != "RELEASED" || l["lease_id"] != lease {
		f.Errorf("the lease is %v", l)
	}
	if j := member(got, "job"); j["state"] != "QUEUED" || j["lease_id"] != nil {
		f.Errorf("the job is %v", j)
	}
	f.used(0)
	f.refused(http.MethodPost, "/lease/"+lease+"/heartbeat", holding(job), http.StatusConflict, CodeLeaseNotActive)
	f.refused(http.MethodPost, "/lease/"+lease+"/release", holding(job, "status", "SUCCEEDED"), http.StatusConflict, CodeLeaseNotActive)
	f.is(job, "QUEUED")
	if again := id(f.claim()); again != job {
		f.Errorf("claimed %s", again)
	}
	next, _ := f.lease(job)["lease_id"].(string)
	if next == lease {
		f.Error("the next lease has the same id")
	}
	// A job whose cancellation was requested ends.
	f.post("/jobs/"+job+"/cancel", object{"reason": "stop"})
	f.is(job, "RUNNING")
	if j := member(f.post("/lease/"+next+"/cancel", nil), "job"); j["state"] != "CANCELED" {
		f.Errorf("the job is %v", j)
	}
	f.refused(http.MethodPost, "/lease/"+next+"/cancel", object{"reason": "otherwise"}, http.StatusConflict, CodeLeaseNotActive)
	f.refused(http.MethodPost, "/lease/00000000-0000-4000-8000-000000000000/cancel", nil, http.StatusNotFound, CodeLeaseNotFound)
	f.refused(http.MethodPost, "/lease/"+next+"/cancel", object{"why": "x"}, http.StatusBadRequest, CodeInvalidRequest)
	rows := f.list("/facts/lease_runs", "lease_runs")
	if len(rows) != 2 || rows[0]["state"] != "RELEASED" || rows[0]["release_status"] != nil || rows[1]["state"] != "RELEASED" || rows[1]["release_status"] != "CANCELED" {
		f.Errorf("the facts are %v", rows)
	}
}
