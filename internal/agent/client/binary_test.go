package client_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/client"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/download"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

const binary = "0123456789abcdefghijklmnopqrstuvwxyz"

func TestAgentBinary(t *testing.T) {
	s, bundle := serving(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != protocol.PathAgent || r.URL.Query().Get("sha256") != "d1" {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		http.ServeContent(w, r, "", time.Time{}, strings.NewReader(binary))
	})
	c := connect(t, func(o *client.Options) { o.Servers, o.TrustBundle = []string{s.URL}, bundle })
	for offset, test := range map[int64]struct {
		content string
		err     error
	}{
		0:  {content: binary},
		10: {content: binary[10:]},
		36: {err: download.ErrNoSuchPart},
		99: {err: download.ErrNoSuchPart},
	} {
		var got []byte
		err := c.AgentBinary(t.Context(), "d1", offset, func(from, size int64, body io.Reader) (err error) {
			if from != offset || size != int64(len(binary)) {
				t.Errorf("from %d: begins at %d of %d", offset, from, size)
			}
			got, err = io.ReadAll(body)
			return err
		})
		if !errors.Is(err, test.err) || string(got) != test.content {
			t.Errorf("from %d: got %q, %v", offset, got, err)
		}
	}
	if err := c.AgentBinary(t.Context(), "d2", 0, nil); err == nil {
		t.Error("got a binary that is not there")
	}
}

// A bundle is fetched like a binary, and its size is known before.
func TestBundle(t *testing.T) {
	s, bundle := serving(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != protocol.PathBundle || r.URL.Query().Get("sha256") != "d1" {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		http.ServeContent(w, r, "", time.Time{}, strings.NewReader(binary))
	})
	c := connect(t, func(o *client.Options) { o.Servers, o.TrustBundle = []string{s.URL}, bundle })
	for _, offset := range []int64{0, 10, 35} {
		var got []byte
		err := c.Bundle(t.Context(), "d1", offset, int64(len(binary)), func(from int64, body io.Reader) (err error) {
			if from != offset {
				t.Errorf("from %d: begins at %d", offset, from)
			}
			got, err = io.ReadAll(body)
			return err
		})
		if err != nil || string(got) != binary[offset:] {
			t.Errorf("from %d: got %q, %v", offset, got, err)
		}
	}
	for size, want := range map[int64]string{35: "more than the allowed", 37: "a file of 36 bytes, and the pinned bundle has 37"} {
		err := c.Bundle(t.Context(), "d1", 0, size, func(int64, io.Reader) error {
			t.Error("took a file of another size")
			return nil
		})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("size %d: %v", size, err)
		}
	}
}

// A server that has no ranges sends everything; one that sends another range is
// refused.
func TestAgentBinaryFromSimpleServers(t *testing.T) {
	answers := map[string]func(http.ResponseWriter){
		"everything": func(w http.ResponseWriter) { _, _ = io.WriteString(w, binary) },
		"another range": func(w http.ResponseWriter) {
			w.Header().Set("Content-Range", fmt.Sprintf("bytes 5-35/%d", len(binary)))
			w.WriteHeader(http.StatusPartialContent)
			_, _ = io.WriteString(w, binary[5:])
		},
	}
	for name, answer := range answers {
		s, bundle := serving(t, func(w http.ResponseWriter, _ *http.Request) { answer(w) })
		var got bytes.Buffer
		err := connect(t, func(o *client.Options) { o.Servers, o.TrustBundle = []string{s.URL}, bundle }).AgentBinary(t.Context(), "d1", 10, func(from, _ int64, body io.Reader) error {
			if from != 0 {
				t.Errorf("%s: begins at %d", name, from)
			}
			_, err := io.Copy(&got, body)
			return err
		})
		if name == "everything" && (err != nil || got.String() != binary) || name != "everything" && (err == nil || got.Len() > 0) {
			t.Errorf("%s: got %q, %v", name, &got, err)
		}
	}
}

func TestThreat26_EndlessBinary(t *testing.T) {
	for name, announce := range map[string]bool{"announced": true, "not announced": false} {
		s, bundle := serving(t, func(w http.ResponseWriter, _ *http.Request) {
			if announce {
				w.Header().Set("Content-Length", fmt.Sprint(protocol.MaxAgentBytes+1))
			}
			chunk := make([]byte, 1<<20)
			for range protocol.MaxAgentBytes/len(chunk) + 1 {
				if _, err := w.Write(chunk); err != nil {
					return
				}
			}
		})
		var took int64
		err := connect(t, func(o *client.Options) { o.Servers, o.TrustBundle = []string{s.URL}, bundle }).AgentBinary(t.Context(), "d1", 0, func(_, _ int64, body io.Reader) (err error) {
			took, err = io.Copy(io.Discard, body)
			return err
		})
		if !errors.Is(err, download.ErrTooBig) || took > protocol.MaxAgentBytes || announce && took > 0 {
			t.Errorf("%s: took %d bytes, %v", name, took, err)
		}
	}
}
