package monolith

import (
	"context"

	"google.golang.org/grpc/metadata"

	publicpb "github.com/gopherqueue/gq/api/taskqueue/v1"
	"github.com/gopherqueue/gq/internal/taskwork"
	"github.com/gopherqueue/gq/services/internal/rpc"
)

// forwardedKey marks a call from another node. The receiver answers it itself, so that
// nodes that disagree about the peers cannot forward it in circles.
const forwardedKey = "gq-forwarded"

// at returns the node that owns an id and the context to call it with: nil for this
// node.
func (n *Node) at(ctx context.Context, id string) (publicpb.TaskQueuePublicServiceClient, context.Context) {
	owner := taskwork.Owner(id, len(n.peers))
	if owner == n.config.Index || len(metadata.ValueFromIncomingContext(ctx, forwardedKey)) > 0 {
		return nil, ctx
	}
	return n.peers[owner], metadata.AppendToOutgoingContext(ctx, forwardedKey, "1")
}

// forward returns a peer's answer as this node's own.
func forward[T any](answer T, err error) (T, error) {
	if err != nil {
		var none T
		return none, rpc.Downstream("owner's", err)
	}
	return answer, nil
}

// SubmitJob accepts a job here, or forwards it to the owner of its key.
func (n *Node) SubmitJob(ctx context.Context, r *publicpb.SubmitJobRequest) (*publicpb.SubmitJobResponse, error) {
	if key := r.GetClientRequestId(); key != "" {
		if peer, ctx := n.at(ctx, key); peer != nil {
			return forward(peer.SubmitJob(ctx, r))
		}
	}
	return n.local.SubmitJob(ctx, r)
}

// GetJobStatus asks the owner.
func (n *Node) GetJobStatus(ctx context.Context, r *publicpb.GetJobStatusRequest) (*publicpb.GetJobStatusResponse, error) {
	if peer, ctx := n.at(ctx, r.GetJobId()); peer != nil {
		return forward(peer.GetJobStatus(ctx, r))
	}
	return n.local.GetJobStatus(ctx, r)
}

// GetJobResult asks the owner.
func (n *Node) GetJobResult(ctx context.Context, r *publicpb.GetJobResultRequest) (*publicpb.GetJobResultResponse, error) {
	if peer, ctx := n.at(ctx, r.GetJobId()); peer != nil {
		return forward(peer.GetJobResult(ctx, r))
	}
	return n.local.GetJobResult(ctx, r)
}

// CancelJob asks the owner.
func (n *Node) CancelJob(ctx context.Context, r *publicpb.CancelJobRequest) (*publicpb.CancelJobResponse, error) {
	if peer, ctx := n.at(ctx, r.GetJobId()); peer != nil {
		return forward(peer.CancelJob(ctx, r))
	}
	return n.local.CancelJob(ctx, r)
}

// ListJobs lists only the jobs of this node.
func (n *Node) ListJobs(ctx context.Context, r *publicpb.ListJobsRequest) (*publicpb.ListJobsResponse, error) {
	return n.local.ListJobs(ctx, r)
}
