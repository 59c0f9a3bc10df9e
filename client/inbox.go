package client

import (
	"context"

	"github.com/gopherqueue/gq"
	pb "github.com/gopherqueue/gq/api/gopherqueue/v1"
	"github.com/gopherqueue/gq/internal/pbconv"
)

// Inbox counts submissions that are not jobs and lists the refused ones.
func (c *Client) Inbox(ctx context.Context, cursor string, limit int) (gq.Inbox, error) {
	m, err := invoke(ctx, c, repeat, c.inbox.ReadInbox, &pb.ReadInboxRequest{Cursor: cursor, Limit: int64(limit)})
	if err != nil {
		return gq.Inbox{}, err
	}
	return read("read inbox", m, pbconv.InboxFromProto)
}

// RetryRefused makes the queue decide again about refused submissions.
func (c *Client) RetryRefused(ctx context.Context, which gq.RefusedSelection) (int, error) {
	m, err := invoke(ctx, c, repeat, c.inbox.RetryRefused, &pb.RetryRefusedRequest{JobIds: pbconv.ProtoJobIDs(which.Jobs), All: which.All})
	return int(m.GetSubmissions()), err
}

// DiscardRefused deletes refused submissions.
func (c *Client) DiscardRefused(ctx context.Context, which gq.RefusedSelection) (int, error) {
	m, err := invoke(ctx, c, repeat, c.inbox.DiscardRefused, &pb.DiscardRefusedRequest{JobIds: pbconv.ProtoJobIDs(which.Jobs), All: which.All})
	return int(m.GetSubmissions()), err
}
