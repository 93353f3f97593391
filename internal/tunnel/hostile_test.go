package tunnel

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// hostileAgent is a session whose agent answers dials by a handler.
func hostileAgent(t *testing.T, dials http.HandlerFunc) (session *Session, manager *end, stop func()) {
	t.Helper()
	manager, agent := link()
	served := make(chan struct{})
	go func() {
		defer close(served)
		serveHTTP(agent, settings(), func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodOptions {
				w.WriteHeader(http.StatusNoContent)
				return
			}
			dials(w, r)
		})
	}()
	session, err := NewSession(t.Context(), manager)
	want(t, err, nil)
	return session, manager, func() {
		session.Close(nil)
		<-served
		synctest.Wait()
	}
}

func TestThreat13_HostileAgent(t *testing.T) {
	for name, c := range map[string]struct {
		dials http.HandlerFunc
		want  error
		after time.Duration
	}{
		// net/http ends the connection, rather than read them.
		"endless headers": {want: ErrClosed, dials: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Large", strings.Repeat("x", 1<<20))
			w.WriteHeader(http.StatusOK)
		}},
		// One at a time, as nothing but the manager's reading bounds what the agent sends.
		"endless interim answers": {want: ErrReset, after: 3 * time.Millisecond, dials: func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				w.Header().Set("X-Large", strings.Repeat("x", 1<<10))
				w.WriteHeader(http.StatusEarlyHints)
				select {
				case <-r.Context().Done():
				case <-time.After(time.Millisecond):
				}
			}
		}},
		"endless refusal": {want: ErrForbidden, dials: func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.Copy(w, endless{})
		}},
		"another answer": {want: ErrReset, dials: func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusTeapot)
		}},
		"reset": {want: ErrReset, dials: func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }},
		"no answer to dials": {want: ErrFiltered, after: dialTimeout, dials: func(_ http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				session, manager, stop := hostileAgent(t, c.dials)
				defer stop()
				began := time.Now()
				_, err := session.Dial(t.Context(), apiServer)
				want(t, err, c.want)
				if got := time.Since(began); got != c.after {
					t.Errorf("failed after %s, want %s", got, c.after)
				}
				synctest.Wait()
				if n := session.Streams(); n != 0 {
					t.Errorf("%d streams, want none", n)
				}
				if n, _ := manager.in.count(); n > 3*streamWindow {
					t.Errorf("the agent could send %d bytes", n)
				}
				if ended := session.Err() != nil; ended != errors.Is(c.want, ErrClosed) {
					t.Errorf("the session's error is %v", session.Err())
				}
			})
		})
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

// hostileManager is a connection to an agent that takes any request.
func hostileManager(t *testing.T, dial Dialer) (client *http.ClientConn, manager *end, stop func()) {
	t.Helper()
	manager, agent := link()
	served := make(chan error, 1)
	go func() { served <- Serve(context.WithoutCancel(t.Context()), agent, dial) }()
	transport := &http.Transport{
		DialContext: func(context.Context, string, string) (net.Conn, error) { return manager, nil },
		Protocols:   protocols(), HTTP2: settings(), MaxResponseHeaderBytes: maxHeaderBytes,
	}
	client, err := transport.NewClientConn(t.Context(), "http", "agent:80")
	want(t, err, nil)
	return client, manager, func() {
		_ = client.Close()
		want(t, <-served, ErrClosed)
	}
}

func TestHostileManager(t *testing.T) {
	for name, c := range map[string]struct {
		request http.Request
		want    int
	}{
		"address":       {request: http.Request{Method: http.MethodConnect, URL: &url.URL{Scheme: "http", Host: "10.0.0.1:22"}}, want: http.StatusForbidden},
		"large headers": {request: http.Request{Method: http.MethodConnect, Header: http.Header{"X-Large": {strings.Repeat("x", 2*maxHeaderBytes)}}}, want: http.StatusRequestHeaderFieldsTooLarge},
		"other method":  {request: http.Request{Method: http.MethodGet}, want: http.StatusMethodNotAllowed},
		"endless question": {
			request: http.Request{Method: http.MethodOptions, Body: io.NopCloser(endless{}), ContentLength: -1}, want: http.StatusNoContent,
		},
		"endless body of a refused dial": {
			request: http.Request{Method: http.MethodConnect, Body: io.NopCloser(endless{}), ContentLength: -1}, want: http.StatusForbidden,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, manager, stop := hostileManager(t, func(context.Context, string) (net.Conn, error) { return nil, ErrForbidden })
				defer stop()
				request := c.request.WithContext(t.Context())
				if request.URL == nil {
					request.URL = &url.URL{Scheme: "http", Host: apiServer, Path: "/"}
				}
				if request.Header == nil {
					request.Header = http.Header{}
				}
				answer, err := client.RoundTrip(request)
				if c.want == http.StatusRequestHeaderFieldsTooLarge && err != nil {
					return // the client keeps the agent's limit
				}
				want(t, err, nil)
				_ = answer.Body.Close()
				if answer.StatusCode != c.want {
					t.Errorf("the agent answered %d, want %d", answer.StatusCode, c.want)
				}
				synctest.Wait()
				if n, _ := manager.out.count(); n > 2*streamWindow {
					t.Errorf("the manager could send %d bytes", n)
				}
			})
		})
	}
}

// A frame that is judged byte by byte is judged like a whole one.
func TestFramesInPieces(t *testing.T) {
	good := []byte{
		0, 0, 12, typeSettings, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 129, 0, settingFrameSize, 0, 0, 0x40, 0,
		0, 0, 3, 0, 1, 0, 0, 0, 1, 'a', 'b', 'c',
		0, 0, 0, typeSettings, 1, 0, 0, 0, 0,
	}
	for name, c := range map[string]struct {
		then, instead []byte
		want          error
	}{
		"no settings":   {instead: []byte{0, 0, 4, 8, 0, 0, 0, 0, 0, 0, 0, 0, 1}, want: errFirstFrame},
		"data":          {then: []byte{0, 0, 1, 0, 0, 0, 0, 0, 1, 'a'}},
		"larger frames": {then: []byte{0, 0, 6, typeSettings, 0, 0, 0, 0, 0, 0, settingFrameSize, 0, 0, 0x40, 1}, want: errFrameSize},
		"priority":      {then: []byte{0, 0, 5, typePriority, 0, 0, 0, 0, 1}, want: errFrameType},
		"push":          {then: []byte{0, 0, 5, typePushPromise, 0, 0, 0, 0, 1}, want: errFrameType},
		"extension":     {then: []byte{0, 0, 5, 10, 0, 0, 0, 0, 1}, want: errFrameType},
	} {
		stream := bytes.Join([][]byte{good, c.then}, nil)
		if c.instead != nil {
			stream = c.instead
		}
		for size := 1; size <= len(stream); size++ {
			var err error
			var f frames
			for p := stream; len(p) > 0 && err == nil; p = p[min(size, len(p)):] {
				err = f.inspect(p[:min(size, len(p))])
			}
			if c.want == nil && err != nil {
				t.Fatalf("%s in pieces of %d: %v", name, size, err)
			}
			want(t, err, c.want)
		}
	}
}
