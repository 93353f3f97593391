package agent

import (
	"context"
	"log/slog"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/client"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/connection"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/oplog"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/retry"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/signal"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// logSender sends the logs that plans ask for, beside everything else: a person waits for them,
// perhaps because an operation hangs.
type logSender struct {
	store   *state.Store
	manager *connection.Manager
	keeper  *oplog.Keeper
	runners map[protocol.OperationType]operation.Runner
	backoff *retry.Backoff
	clock   retry.Clock
	log     *slog.Logger
	// wake is raised when the plan may have changed.
	wake signal.Signal
}

// run answers requests until ctx ends. What was answered is not stored: the manager does not take
// a second answer.
func (s *logSender) run(ctx context.Context) error {
	var answered string
	for ctx.Err() == nil {
		request := s.store.Plan().Desired.Log
		if request == nil || request.ID == answered {
			s.wake.Wait(ctx)
			continue
		}
		err := s.answer(ctx, *request)
		switch {
		case ctx.Err() != nil:
		case err == nil:
			s.backoff.Reset()
			answered = request.ID
		default:
			s.log.Warn("Could not send the log that the manager asks for", "request", request.ID, "error", err)
			s.wake.WaitFor(ctx, s.clock, max(s.backoff.Next(), client.RetryAfter(err)))
		}
	}
	return nil
}

func (s *logSender) answer(ctx context.Context, request protocol.LogRequest) error {
	answer, err := s.keeper.Read(request.Operation, func(id string) []operation.Output {
		op, found := s.store.Operation(request.Operation, id)
		if !found {
			return nil
		}
		return printed(s.runners[request.Operation], op, s.log)
	})
	if err != nil {
		return err
	}
	s.log.Info("Sending the log that the manager asks for", "request", request.ID, "operation", request.Operation,
		"id", answer.OperationID, "bytes", len(answer.Text), "redactions", answer.Redactions)
	return s.manager.Client().SendLog(ctx, request.ID, answer)
}

// printed returns what programs of an operation have printed.
func printed(runner operation.Runner, op state.Operation, log *slog.Logger) []operation.Output {
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
