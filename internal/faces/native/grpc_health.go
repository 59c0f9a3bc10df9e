package native

import (
	"context"

	grpchealth "google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

// liveHealth answers what /readyz does: a server that drains, or whose store cannot be used, does
// not serve.
type liveHealth struct {
	*grpchealth.Server
	ready func(ctx context.Context) error // nil asks nobody
}

// Check implements the health service.
func (h liveHealth) Check(ctx context.Context, r *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	answer, err := h.Server.Check(ctx, r)
	if err != nil || h.ready == nil || answer.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		return answer, err
	}
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	if h.ready(ctx) != nil { // /readyz has the reason
		return &healthpb.HealthCheckResponse{Status: healthpb.HealthCheckResponse_NOT_SERVING}, nil
	}
	return answer, nil
}
