/* All templates of the vector loops, for one target: VLEN is the number of doubles in a vector. */

#include "loops_template.h"
#include "chain_types.h"
#include "forest_template.h"
#include "chain_sparse_template.h"
#include "assignment_template.h"
#include "game_template.h"
#include "polytope_template.h"
