package support

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// lists is a reader that has Pods and many large hosts, and no answer about other kinds.
type lists struct {
	client.Reader

	hosts int
	large string
}

func (l lists) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	out, ok := list.(*unstructured.UnstructuredList)
	if !ok {
		return errors.New("not the type that is read")
	}
	add := func(kind, name string) {
		out.Items = append(out.Items, unstructured.Unstructured{Object: map[string]any{
			"kind": kind, "metadata": map[string]any{"name": name}, "status": map[string]any{"text": l.large},
		}})
	}
	switch strings.TrimSuffix(out.GetKind(), "List") {
	case "Pod":
		add("Pod", "manager")
	case "ElementalHost":
		for i := range l.hosts {
			add("ElementalHost", fmt.Sprintf("h%d", i))
		}
	default:
		return errors.New("forbidden: token=hunter2\nsecond line")
	}
	return nil
}

// collect returns the files of an archive.
func collect(t *testing.T, c *Collector) (files map[string]string, missing []string) {
	t.Helper()
	g := NewWithT(t)
	out := &bytes.Buffer{}
	missing, err := c.Write(t.Context(), out, Scope{Namespace: "sites", Manager: "elemental-system"})
	g.Expect(err).NotTo(HaveOccurred())
	zip, err := gzip.NewReader(out)
	g.Expect(err).NotTo(HaveOccurred())
	files = map[string]string{}
	for archive := tar.NewReader(zip); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files, missing
		}
		g.Expect(err).NotTo(HaveOccurred())
		text, err := io.ReadAll(archive)
		g.Expect(err).NotTo(HaveOccurred())
		files[header.Name] = string(text)
	}
}

func logOf(text string) Logs {
	return func(context.Context, string, string) (io.ReadCloser, error) {
		return io.NopCloser(strings.NewReader(text)), nil
	}
}

func TestThreat85_LogsLoseSecrets(t *testing.T) {
	g := NewWithT(t)
	c := &Collector{Client: lists{hosts: 1}, Logs: logOf(`{"msg":"Claiming host","token":"hunter2"}` + "\n"), Now: time.Unix(0, 0)}
	files, missing := collect(t, c)
	g.Expect(files["support/manager/manager.log"]).To(And(ContainSubstring("Claiming host"), Not(ContainSubstring("hunter2"))))
	g.Expect(missing).To(ContainElement("objects/machine.yaml: listing: forbidden: token=" + leftOut + "; second line"))
	g.Expect(files["support/missing.txt"]).To(Equal(strings.Join(missing, "\n") + "\n"))
	g.Expect(files["support/objects/elementalhost.yaml"]).To(ContainSubstring("name: h0"))
}

// An archive is bounded, and says what has no place in it.
func TestBounds(t *testing.T) {
	g := NewWithT(t)
	const limit = 4096
	c := &Collector{
		Client: lists{hosts: 40, large: strings.Repeat("x ", 256)}, Logs: logOf(strings.Repeat("line\n", limit)), Now: time.Unix(0, 0), fileSize: limit,
	}
	files, missing := collect(t, c)
	for name, text := range files {
		g.Expect(len(text)).To(BeNumerically("<=", limit), name)
	}
	g.Expect(files["support/objects/elementalhost.yaml"]).To(And(ContainSubstring("name: h0"), Not(ContainSubstring("name: h39"))))
	g.Expect(missing).To(ContainElements(
		"objects/elementalhost.yaml: "+errFull.Error(), "manager/manager.log: "+errFull.Error()))
	a := newArchive(io.Discard, time.Unix(0, 0))
	for range maxArchive / maxFile {
		g.Expect(a.add("x", make([]byte, maxFile))).To(Succeed())
	}
	g.Expect(a.add("x", []byte("x"))).To(MatchError(errFull))
}

// An interrupt leaves no archive that looks complete.
func TestInterrupt(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := (&Collector{Client: lists{}, Logs: logOf("")}).Write(ctx, io.Discard, Scope{})
	NewWithT(t).Expect(err).To(MatchError(context.Canceled))
}
