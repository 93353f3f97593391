package tunnel

import (
	"context"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

func TestIdleTunnelSendsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, nil)
		defer r.stop()
		conn, target := r.open()
		exchange(t, conn, target, "request")
		exchange(t, target, conn, "answer")
		time.Sleep(time.Minute)
		sent, _ := r.manager.out.count()
		received, _ := r.manager.in.count()
		time.Sleep(24 * time.Hour)
		if n, _ := r.manager.out.count(); n != sent {
			t.Errorf("the manager sent %d bytes", n-sent)
		}
		if n, _ := r.manager.in.count(); n != received {
			t.Errorf("the agent sent %d bytes", n-received)
		}
		exchange(t, conn, target, "request")
	})
}

// An answer counts for all that was sent before the question.
func TestOneQuestionForAnUnansweredWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, nil)
		defer r.stop()
		conn, target := r.open()
		exchange(t, conn, target, "request")
		_, before := r.manager.out.count()
		time.Sleep(patience - time.Millisecond)
		if _, after := r.manager.out.count(); after != before {
			t.Error("the agent was asked before the patience was over")
		}
		time.Sleep(24 * time.Hour)
		if _, after := r.manager.out.count(); after != before+1 {
			t.Errorf("%d questions in a day, want 1", after-before)
		}
		want(t, r.session.Err(), nil)
	})
}

func TestQuestionsKeepTheirInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, nil)
		defer r.stop()
		conn, target := r.open()
		_, before := r.manager.out.count()
		for range 600 {
			exchange(t, conn, target, "unanswered")
			time.Sleep(time.Second)
		}
		if _, after := r.manager.out.count(); after-before < 50 || after-before > 60 {
			t.Errorf("%d questions in 10 minutes, want one every 10 s", after-before)
		}
		want(t, r.session.Err(), nil)
	})
}

func TestDeadTunnelIsFoundByDial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, nil)
		defer r.stop()
		idle, _ := r.open()
		r.manager.cut()
		began := time.Now()
		_, err := r.session.Dial(t.Context(), apiServer)
		want(t, err, ErrUnresponsive, ErrClosed)
		if got := time.Since(began); got != patience+answerTimeout {
			t.Errorf("found after %s, want %s", got, patience+answerTimeout)
		}
		_, err = idle.Read(make([]byte, 1))
		want(t, err, ErrUnresponsive, ErrClosed)
		<-r.session.Done()
		want(t, r.session.Err(), ErrUnresponsive)
	})
}

// A caller that tries the next host soon gives up before the agent is asked.
func TestDeadTunnelIsFoundByDialThatWasGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, nil)
		defer r.stop()
		r.manager.cut()
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := r.session.Dial(ctx, apiServer)
		want(t, err, context.DeadlineExceeded)
		<-r.session.Done()
		want(t, r.session.Err(), ErrUnresponsive)
		if got := time.Since(began); got != patience+answerTimeout {
			t.Errorf("found after %s, want %s", got, patience+answerTimeout)
		}
	})
}

// An agent that answers the question stays, whatever callers gave up.
func TestGivenUpDialsEndNoTunnel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, func(ctx context.Context, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})
		defer r.stop()
		_, before := r.manager.out.count()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := r.session.Dial(ctx, apiServer)
		want(t, err, context.DeadlineExceeded)
		time.Sleep(24 * time.Hour)
		want(t, r.session.Err(), nil)
		if _, after := r.manager.out.count(); after > before+4 {
			t.Errorf("%d frames in a day after one dial", after-before)
		}
	})
}

func TestDeadTunnelIsFoundByWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, nil)
		defer r.stop()
		conn, target := r.open()
		exchange(t, conn, target, "request") // the first question is due in 5 s
		time.Sleep(patience + time.Second)
		r.manager.cut()
		began := time.Now()
		_, err := conn.Write([]byte("request"))
		want(t, err, nil)
		_, err = conn.Read(make([]byte, 1))
		want(t, err, ErrUnresponsive, ErrClosed)
		if got := time.Since(began); got > askInterval+patience+answerTimeout {
			t.Errorf("found after %s", got)
		}
	})
}

// On a slow link the answer may be behind data: what arrives is an answer.
func TestArrivingDataIsAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		manager, agent := link()
		served := make(chan struct{})
		slow := false
		go func() {
			defer close(served)
			serveHTTP(agent, settings(), func(w http.ResponseWriter, r *http.Request) {
				switch {
				case r.Method == http.MethodConnect:
					w.WriteHeader(http.StatusOK)
					for r.Context().Err() == nil {
						_, _ = w.Write([]byte("data"))
						_ = http.NewResponseController(w).Flush()
						select {
						case <-r.Context().Done():
						case <-time.After(time.Second):
						}
					}
				case slow:
					<-r.Context().Done()
				default:
					slow = true
					w.WriteHeader(http.StatusNoContent)
				}
			})
		}()
		session, err := NewSession(t.Context(), manager)
		want(t, err, nil)
		for range 2 { // nobody reads, so that the agent is suspected
			conn, err := session.Dial(t.Context(), apiServer)
			want(t, err, nil)
			_, err = conn.Write([]byte("request"))
			want(t, err, nil)
		}
		time.Sleep(10 * time.Minute)
		want(t, session.Err(), nil)
		session.Close(nil)
		<-served
		synctest.Wait()
	})
}
