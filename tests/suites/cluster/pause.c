/* The first process of every pod: it keeps the pod's namespaces open, collects processes that lost their parent, and ends
   when it is told to. */
#include <signal.h>
#include <sys/wait.h>

int main(void)
{
    sigset_t awaited;
    int got;

    sigemptyset(&awaited);
    sigaddset(&awaited, SIGCHLD);
    sigaddset(&awaited, SIGINT);
    sigaddset(&awaited, SIGTERM);
    /* Blocked signals stay pending until they are waited for, so none can slip in between. */
    sigprocmask(SIG_BLOCK, &awaited, 0);
    while (sigwait(&awaited, &got) == 0 && got == SIGCHLD)
        while (waitpid(-1, 0, WNOHANG) > 0)
            ;
    return 0;
}
