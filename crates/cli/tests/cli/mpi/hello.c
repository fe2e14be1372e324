/* Prints its rank and its node, and adds up the ranks with the others. */
#include <mpi.h>
#include <stdio.h>

int main(int argc, char **argv) {
    int rank, size, length, mine, sum;
    char host[MPI_MAX_PROCESSOR_NAME];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Get_processor_name(host, &length);
    mine = 41 * rank + 1;
    MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    printf("rank %d of %d on %s: sum %d\n", rank, size, host, sum);
    MPI_Finalize();
    return 0;
}
