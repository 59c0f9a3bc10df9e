package client

import (
	"context"

	"google.golang.org/grpc"

	pb "github.com/gopherqueue/gq/api/gopherqueue/v1"
	"github.com/gopherqueue/gq/internal/pbconv"
)

// Admin returns the calls for operators: tokens and webhook deliveries. Their errors are those of
// package gq.
func (c *Client) Admin() pb.AdminServiceClient {
	return pb.NewAdminServiceClient(domainErrors{c.conn})
}

// domainErrors is a connection that converts errors to those of package gq.
type domainErrors struct{ *grpc.ClientConn }

func (d domainErrors) Invoke(ctx context.Context, method string, in, out any, options ...grpc.CallOption) error {
	return pbconv.ErrorFromStatus(d.ClientConn.Invoke(ctx, method, in, out, options...))
}
