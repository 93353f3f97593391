package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/kubectl/support"
)

// maxLogLines is the number of lines of a log that are asked for, from its end.
const maxLogLines = 20_000

func (e *environment) supportBundle() *cobra.Command {
	var file, manager string
	cmd := &cobra.Command{
		Use: "support-bundle [CLUSTER]", Short: "Collect objects, Events and logs without secrets in one archive",
		Long: "Collects the objects of this provider and of Cluster API in the namespace, their Events, the manager's logs,\n" +
			"and the logs that hosts have sent for kubectl elemental logs. No host is asked, and no other Secret is read.\n" +
			"What can't be read is named in missing.txt of the archive. Look at it before you give it to others.",
		Example: "  kubectl elemental support-bundle berlin",
		Args:    cobra.MaximumNArgs(1), ValidArgsFunction: e.completeNames("clusters"),
		RunE: func(cmd *cobra.Command, args []string) error {
			scope := support.Scope{Manager: manager}
			if len(args) == 1 {
				scope.Cluster = args[0]
			}
			return e.runSupportBundle(cmd.Context(), file, scope)
		},
	}
	cmd.Flags().StringVarP(&file, "output", "o", "", "file of the archive, which must not exist; by default elemental-support-TIME.tar.gz in this folder")
	cmd.Flags().StringVar(&manager, "manager-namespace", "elemental-system", "namespace of the manager")
	return cmd
}

func (e *environment) runSupportBundle(ctx context.Context, file string, scope support.Scope) (err error) {
	if scope.Namespace, err = e.namespace(); err != nil {
		return err
	}
	c, err := e.client()
	if err != nil {
		return err
	}
	logs, err := e.logs()
	if err != nil {
		return err
	}
	now := e.Clock.Now()
	if file == "" {
		file = "elemental-support-" + now.UTC().Format("20060102T150405Z") + ".tar.gz"
	}
	out, err := os.OpenFile(filepath.Clean(file), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("creating the archive: %w", err)
	}
	collector := &support.Collector{Client: c, Logs: logs, Version: e.Version, Now: now}
	missing, err := collector.Write(ctx, out, scope)
	if err = errors.Join(err, out.Close()); err != nil {
		return errors.Join(fmt.Errorf("collecting into %s: %w", file, err), os.Remove(file))
	}
	for _, part := range missing {
		fmt.Fprintf(e.ErrOut, "Not in the archive: %s\n", part)
	}
	return e.print("The archive is %s. Look at what it has before you give it to others", file)
}

// logs returns what opens logs of Pods.
func (e *environment) logs() (support.Logs, error) {
	config, err := e.flags.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	c, err := corev1client.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("connecting to the management cluster: %w", err)
	}
	lines := int64(maxLogLines)
	return func(ctx context.Context, namespace, pod string) (io.ReadCloser, error) {
		return c.Pods(namespace).GetLogs(pod, &corev1.PodLogOptions{TailLines: &lines}).Stream(ctx)
	}, nil
}
