// Command tools builds programs for tests from Go modules and prints the folder they are in:
//
//	go run ./test/tools etcd etcdutl kube-apiserver
//
// An argument is a tool, a tool set or "all"; -h lists them.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/tools/toolset"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "tools:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	modules := flag.String("modules", filepath.Join("test", "tools"), "folder with one module per tool set")
	flag.Usage = func() {
		_, _ = fmt.Fprintf(flag.CommandLine.Output(), "Usage: tools [flags] NAME...\n\nNames: %s\n\nThe cache is $ELEMENTAL_CACHE.\n\n",
			strings.Join(toolset.Names(), ", "))
		flag.PrintDefaults()
	}
	flag.Parse()
	tools, err := toolset.Select(flag.Args()...)
	if err != nil {
		return err
	}
	if len(tools) == 0 {
		flag.Usage()
		return fmt.Errorf("naming at least one tool is needed")
	}
	cache, err := toolset.CacheDir()
	if err != nil {
		return err
	}
	folder, err := toolset.Builder{Modules: *modules, Cache: cache, Progress: os.Stderr}.Folder(ctx, tools...)
	if err != nil {
		return err
	}
	fmt.Println(folder)
	return nil
}
