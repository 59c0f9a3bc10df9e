package wire

import (
	"fmt"
	"time"

	"github.com/gopherqueue/gq"
)

// TimeoutsBody has the limits of a job in the names of the job model. A submission can have them only in
// its view.
type TimeoutsBody struct {
	Execution  *Duration `json:"execution,omitempty" doc:"Limit of one execution, execution_timeout of the policy; 0s is none."`
	Visibility *Duration `json:"visibility,omitempty" doc:"From dispatch until the job is reclaimed, lease_ttl of the policy."`
	Lifetime   *Duration `json:"lifetime,omitempty" doc:"From submission to a terminal state, lifetime of the policy; 0s is no limit."`
}

// limit is one of them, with what the policy of the same submission says.
type limit struct {
	name, policy string
	given, own   *Duration
	to           *time.Duration
}

// Limit sets the limits of a job that was submitted with the policy, and lists what is wrong with them.
func (t *TimeoutsBody) Limit(s *gq.Spec, policy *Policy, inView bool) (faults []gq.Fault) {
	if t == nil {
		return nil
	}
	if !inView {
		return []gq.Fault{{Field: "timeouts", Problem: "is only accepted with view=jobmodel; without a view set policy"}}
	}
	if policy == nil {
		policy = &Policy{}
	}
	fault := func(name, format string, args ...any) {
		faults = append(faults, gq.Fault{Field: "timeouts." + name, Problem: fmt.Sprintf(format, args...)})
	}
	o := &s.Overrides
	for _, l := range []limit{
		{"execution", "execution_timeout", t.Execution, policy.ExecutionTimeout, &o.ExecutionTimeout},
		{"visibility", "lease_ttl", t.Visibility, policy.LeaseTTL, &o.LeaseTTL},
		{"lifetime", "lifetime", t.Lifetime, policy.Lifetime, &o.Lifetime},
	} {
		switch {
		case l.given == nil:
		case *l.given < 0, *l.given == 0 && l.name == "visibility":
			fault(l.name, "%v is not above 0", time.Duration(*l.given))
		case l.own != nil && *l.own != *l.given:
			fault(l.name, "%v is not the %v of policy.%s; give one of the two", time.Duration(*l.given), time.Duration(*l.own), l.policy)
		case *l.given == 0:
			*l.to = gq.Unlimited
		default:
			*l.to = time.Duration(*l.given)
		}
	}
	return faults
}

// Names replaces the names of the policy in faults of the limits by those of the timeouts.
// Fields begin with at.
func (t *TimeoutsBody) Names(at string, faults []gq.Fault) {
	for i := range faults {
		switch f := &faults[i].Field; {
		case *f == at+"policy.execution_timeout" && t.Execution != nil:
			*f = at + "timeouts.execution"
		case *f == at+"policy.lease_ttl" && t.Visibility != nil:
			*f = at + "timeouts.visibility"
		case *f == at+"policy.lifetime" && t.Lifetime != nil:
			*f = at + "timeouts.lifetime"
		}
	}
}
