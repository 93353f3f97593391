package support

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

const (
	// pageSize is the number of objects in memory at a time.
	pageSize = 500
	// maxPods is the number of Pods whose logs are read.
	maxPods = 5
	// partTimeout is how long one part may take, so that an API server that does not answer
	// does not keep the other parts out.
	partTimeout = time.Minute
)

// managerLabels are those of the manager's Pods.
func managerLabels() client.MatchingLabels {
	return client.MatchingLabels{"control-plane": "controller-manager"}
}

// Logs opens the log of a Pod.
type Logs func(ctx context.Context, namespace, pod string) (io.ReadCloser, error)

// Collector collects what helps to find out what is wrong.
type Collector struct {
	// Client reads from the API server, with the rights of the person.
	Client client.Reader
	Logs   Logs
	// Version of this program.
	Version string
	Now     time.Time

	// fileSize is maxFile, or less in tests.
	fileSize int
}

// Scope says what is collected.
type Scope struct {
	Namespace string
	// Cluster is the only Cluster whose objects are collected; blank for all of the namespace.
	Cluster string
	// Manager is the namespace of the manager.
	Manager string
}

// collection is an archive that is being written.
type collection struct {
	*Collector

	scope   Scope
	redact  *redactor
	archive *archive
	// counts and missing are lines that say what is there, and what could not be read.
	counts, missing []string
	// logged are the hosts whose logs are there, without anything else of them.
	logged []*infrav1.ElementalHost
}

// Write writes the archive. It returns what could not be read, which a file of the archive names
// too. An error means that there is no archive.
func (c *Collector) Write(ctx context.Context, out io.Writer, scope Scope) (missing []string, err error) {
	w := &collection{Collector: c, scope: scope, redact: newRedactor(), archive: newArchive(out, c.Now)}
	for _, k := range kinds() {
		if err := w.part(ctx, k.file(), func(ctx context.Context, f *file) error { return w.objects(ctx, k, f) }); err != nil {
			return nil, err
		}
	}
	if err := w.manager(ctx); err != nil {
		return nil, err
	}
	if err := w.hostLogs(ctx); err != nil {
		return nil, err
	}
	if err := w.summary(); err != nil {
		return nil, err
	}
	return w.missing, w.archive.close()
}

func (c *Collector) limit() int { return cmp.Or(c.fileSize, maxFile) }

// part adds one file. What can't be read becomes a line of missing.
func (w *collection) part(ctx context.Context, name string, fill func(ctx context.Context, f *file) error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("collecting: %w", ctx.Err())
	}
	limited, cancel := context.WithTimeout(ctx, partTimeout)
	defer cancel()
	f := &file{limit: w.limit()}
	if err := fill(limited, f); err != nil {
		w.lacks(name, err)
	}
	if f.Len() == 0 {
		return nil
	}
	err := w.archive.add(name, f.Bytes())
	if errors.Is(err, errFull) {
		w.lacks(name, err)
		return nil
	}
	return err
}

func (w *collection) lacks(name string, err error) {
	w.missing = append(w.missing, name+": "+strings.ReplaceAll(w.redact.text(err.Error()), "\n", "; "))
}

// objects writes the objects of a kind as YAML documents.
func (w *collection) objects(ctx context.Context, k kind, f *file) error {
	options := []client.ListOption{client.InNamespace(w.scope.Namespace)}
	if w.scope.Cluster != "" && k.ofCluster {
		options = append(options, client.MatchingLabels{clusterv1.ClusterNameLabel: w.scope.Cluster})
	}
	count, connected := 0, 0
	err := w.each(ctx, k.GroupVersionKind, options, func(o *unstructured.Unstructured) error {
		if k.Kind == "Cluster" && w.scope.Cluster != "" && o.GetName() != w.scope.Cluster {
			return nil
		}
		count++
		if state, _, _ := unstructured.NestedString(o.Object, "status", "connection", "state"); state == "Connected" {
			connected++
		}
		if k.Kind == "ElementalHost" {
			w.addLogged(o)
		}
		return w.write(o, f)
	})
	line := fmt.Sprintf("%s: %d", k.Kind, count)
	if k.Kind == "ElementalHost" {
		line += fmt.Sprintf(", %d connected", connected)
	}
	w.counts = append(w.counts, line)
	return err
}

func (w *collection) write(o *unstructured.Unstructured, f *file) error {
	w.redact.object(o.GetKind(), o.Object)
	text, err := yaml.Marshal(o.Object)
	if err != nil {
		return fmt.Errorf("encoding %s: %w", o.GetName(), err)
	}
	return f.append(slices.Concat([]byte("---\n"), text))
}

// each lists objects by pages.
func (w *collection) each(ctx context.Context, gvk schema.GroupVersionKind, options []client.ListOption, visit func(*unstructured.Unstructured) error) error {
	for next := ""; ; {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
		if err := w.Client.List(ctx, list, slices.Concat(options, []client.ListOption{client.Limit(pageSize), client.Continue(next)})...); err != nil {
			return fmt.Errorf("listing: %w", err)
		}
		for i := range list.Items {
			if err := visit(&list.Items[i]); err != nil {
				return err
			}
		}
		if next = list.GetContinue(); next == "" {
			return nil
		}
	}
}

// manager writes the manager's Pods and their logs.
func (w *collection) manager(ctx context.Context) error {
	var pods []string
	options := []client.ListOption{client.InNamespace(w.scope.Manager), managerLabels()}
	err := w.part(ctx, "manager/pods.yaml", func(ctx context.Context, f *file) error {
		return w.each(ctx, schema.GroupVersionKind{Version: "v1", Kind: "Pod"}, options, func(o *unstructured.Unstructured) error {
			pods = append(pods, o.GetName())
			return w.write(o, f)
		})
	})
	if err != nil {
		return err
	}
	w.counts = append(w.counts, fmt.Sprintf("Pods of the manager: %d", len(pods)))
	for i, pod := range pods {
		name := "manager/" + pod + ".log"
		if i >= maxPods {
			w.lacks(name, errFull)
			continue
		}
		if err := w.part(ctx, name, func(ctx context.Context, f *file) error { return w.log(ctx, pod, f) }); err != nil {
			return err
		}
	}
	return nil
}

func (w *collection) log(ctx context.Context, pod string, f *file) (err error) {
	stream, err := w.Logs(ctx, w.scope.Manager, pod)
	if err != nil {
		return fmt.Errorf("reading the log: %w", err)
	}
	defer func() { err = errors.Join(err, stream.Close()) }()
	text, err := io.ReadAll(io.LimitReader(stream, int64(w.limit()/2)))
	if len(text) == w.limit()/2 {
		w.lacks("manager/"+pod+".log", errFull)
	}
	if appended := f.append([]byte(w.redact.text(string(text)))); appended != nil {
		return appended
	}
	if err != nil {
		return fmt.Errorf("reading the log: %w", err)
	}
	return nil
}

// summary writes what the archive has, and what it lacks. There is always place for it.
func (w *collection) summary() error {
	cluster := w.scope.Cluster
	if cluster == "" {
		cluster = "all"
	}
	text := fmt.Sprintf("kubectl-elemental %s\nTime: %s\nNamespace: %s\nCluster: %s\n\n%s\n", w.Version, w.Now.UTC().Format(time.RFC3339),
		w.scope.Namespace, cluster, strings.Join(w.counts, "\n"))
	if err := w.archive.write("summary.txt", []byte(text)); err != nil {
		return err
	}
	lacks := "Everything could be read\n"
	if len(w.missing) > 0 {
		lacks = strings.Join(w.missing, "\n") + "\n"
	}
	return w.archive.write("missing.txt", []byte(lacks))
}
