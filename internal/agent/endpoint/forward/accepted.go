package forward

import (
	"context"
	"fmt"
	"net"
	"time"
)

// Accepted is what a client gets first that asks for it by Options.Confirm.
const Accepted byte = '+'

// AwaitAccepted waits, as a client that asks for it, until a backend has accepted the
// connection.
func AwaitAccepted(ctx context.Context, conn net.Conn) error {
	stop := context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })
	answer := make([]byte, 1)
	_, err := conn.Read(answer)
	if !stop() {
		return context.Cause(ctx)
	}
	if err == nil && answer[0] != Accepted {
		err = fmt.Errorf("the forwarder sent %q", answer)
	}
	return err
}
