package oplog

import (
	"context"
	"log/slog"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/client"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/connection"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/retry"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/signal"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// Sender sends the logs that plans ask for, beside everything else: a person waits for them,
// perhaps because an operation hangs. All fields are required.
type Sender struct {
	// State has the plan and the operations, and Logs their logs.
	State   *state.Store
	Logs    *Store
	Manager *connection.Manager
	Runners map[protocol.OperationType]operation.Runner
	Backoff *retry.Backoff
	Clock   retry.Clock
	Log     *slog.Logger
	// Wake is raised when the plan may have changed.
	Wake signal.Signal
}

// Run answers requests until ctx ends. What was answered is not stored: the manager does not take
// a second answer.
func (s *Sender) Run(ctx context.Context) error {
	var answered string
	for ctx.Err() == nil {
		request := s.State.Plan().Desired.Log
		if request == nil || request.ID == answered {
			s.Wake.Wait(ctx)
			continue
		}
		err := s.answer(ctx, *request)
		switch {
		case ctx.Err() != nil:
		case err == nil:
			s.Backoff.Reset()
			answered = request.ID
		default:
			s.Log.Warn("Could not send the log that the manager asks for", "request", request.ID, "error", err)
			s.Wake.WaitFor(ctx, s.Clock, max(s.Backoff.Next(), client.RetryAfter(err)))
		}
	}
	return nil
}

func (s *Sender) answer(ctx context.Context, request protocol.LogRequest) error {
	answer, err := s.Logs.Read(request.Operation, func(id string) []operation.Output {
		op, found := s.State.Operation(request.Operation, id)
		if !found {
			return nil
		}
		return Printed(s.Runners[request.Operation], op, s.Log)
	})
	if err != nil {
		return err
	}
	s.Log.Info("Sending the log that the manager asks for", "request", request.ID, "operation", request.Operation,
		"id", answer.OperationID, "bytes", len(answer.Text), "redactions", answer.Redactions)
	return s.Manager.Client().SendLog(ctx, request.ID, answer)
}

// Printed returns what programs of an operation have printed.
func Printed(runner operation.Runner, op state.Operation, log *slog.Logger) []operation.Output {
	printer, ok := runner.(operation.Printer)
	if !ok {
		return nil
	}
	outputs, err := printer.Output(op)
	if err != nil {
		log.Warn("Could not read all that programs have printed", "operation", op.Type, "id", op.ID, "error", err)
	}
	return outputs
}
